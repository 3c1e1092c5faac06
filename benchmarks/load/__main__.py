"""The load that a coordinator can bear: many members' uploads at once, memory over time, control calls meanwhile, and the disk's speed.

A coordinator process, processes of members, and one process that writes and syncs the same bytes in files of a chunk's size,
in one run. The ratio of the two can be compared with other machines; the times can't.

    .venv/bin/python -m benchmarks.load --members 40 --upload-mb 0.5 --output runs/load.json
"""

import argparse
import json
import os
import platform
import secrets
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.load.playing import RING_BITS, Load, run
from benchmarks.serving import TOKEN, Served, coordinator
from service.storage.blobs import FileBlobs
from veilsum.protocol.round_spec import CHUNK_ELEMENTS

EVERY_S = 0.5
PROMISED_MEMBERS, PROMISED_MB, INGEST, MEMORY_MB = 100, 40.0, 0.18, 200.0


def local(folder: Path, total: int, chunk_bytes: int) -> float:
    """Return the seconds that one process takes to write and sync this many bytes, chunk by chunk, as the coordinator does."""
    blobs, chunk = FileBlobs(folder), secrets.token_bytes(chunk_bytes)
    begun = time.perf_counter()
    for number, at in enumerate(range(0, total, chunk_bytes)):
        blobs.put(f"local/{number}", chunk[: total - at])
    return time.perf_counter() - begun


def watched(served: Served, stop: threading.Event) -> list[tuple[float, int]]:
    """Record the seconds since the beginning, and the resident bytes, until stopped."""
    begun, found = time.monotonic(), list[tuple[float, int]]()
    while not stop.wait(EVERY_S):
        found.append((round(time.monotonic() - begun, 1), served.resident_bytes))
    return found


def measured(
    folder: Path, members: int, upload_mb: float, processes: int, calls_per_s: int
) -> dict[str, Any]:
    stop, memory = threading.Event(), list[tuple[float, int]]()
    with coordinator(folder) as served:
        watching = threading.Thread(target=lambda: memory.extend(watched(served, stop)))
        watching.start()
        cpu_s = served.cpu_s
        load = Load(served.url, TOKEN, members, round(upload_mb * 1e6), processes, calls_per_s)
        try:
            facts = run(load, folder / "members", print)
        finally:
            cpu_s = served.cpu_s - cpu_s
            stop.set()
            watching.join()
    seconds = local(folder / "local", facts["bytes"], CHUNK_ELEMENTS * RING_BITS // 8)
    resident = [size for _, size in memory]
    step = max(1, len(memory) // 40)
    spans = [memory[start : start + step] for start in range(0, len(memory), step)]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        **facts,
        "coordinator_cpu_seconds": round(cpu_s, 1),
        "resident_mb_at_start": round(resident[0] / 1e6, 1),
        "resident_mb_at_most": round(max(resident) / 1e6, 1),
        "resident_mb_over_time": [
            (span[-1][0], round(max(size for _, size in span) / 1e6)) for span in spans
        ],
        "local_write_and_sync_seconds": round(seconds, 3),
        "ingest_over_local": round(seconds / facts["upload_seconds"], 3),
        "promises": promises(
            members, upload_mb, seconds / facts["upload_seconds"], (max(resident) - resident[0]) / 1e6
        ),
    }


def promises(members: int, upload_mb: float, ratio: float, grown_mb: float) -> list[dict[str, Any]]:
    """Return the promises for a load of this size. Smaller loads, mostly announcements and signatures, have no promises.

    Args:
        ratio: durable bytes per second, relative to one local process.
        grown_mb: the coordinator's largest memory, minus that at its start.
    """
    if members < PROMISED_MEMBERS or upload_mb < PROMISED_MB:
        return []
    name = "durable bytes a second beside one local process"
    accumulators_mb = 2 * upload_mb / RING_BITS * 64
    most_mb = accumulators_mb + MEMORY_MB
    memory = "two sums of 64-bit words and 200 MB above the memory at the start"
    return [
        {"promise": name, "ratio": round(ratio, 3), "at_least": INGEST, "kept": ratio >= INGEST},
        {"promise": memory, "mb": round(grown_mb), "at_most": round(most_mb), "kept": grown_mb <= most_mb},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--upload-mb", type=float, default=0.5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--calls-per-s", type=int, default=100)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        many = (chosen.members, chosen.upload_mb, chosen.processes)
        found = measured(Path(folder), *many, chosen.calls_per_s)
    text = json.dumps(found, indent=2)
    print(text)
    if chosen.output:
        chosen.output.parent.mkdir(exist_ok=True)
        chosen.output.write_text(text + "\n")
    if not all(promise["kept"] for promise in found["promises"]):
        raise SystemExit("load: a promise is not kept")


if __name__ == "__main__":
    main()
