"""What a coordinator bears: many members' uploads at once, its memory over time, control calls beside, and the disk's own speed.

A coordinator process, `veilsum bench service` against it, and one process that writes and syncs the same bytes in files of a chunk's size,
in one run: the ratio of the two may be compared with other machines, the times may not.

    .venv/bin/python -m benchmarks.load --members 40 --upload-mb 0.5 --output runs/load.json
"""

import argparse
import json
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from service.storage.blobs import FileBlobs

CHUNK_BYTES = (1 << 17) * 6
TOKEN = "the load's own token"
EVERY_S = 0.5


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def local(folder: Path, total: int) -> float:
    """Seconds that one process takes to write and sync so many bytes, a chunk at a time, as the coordinator's own folder does."""
    blobs, chunk = FileBlobs(folder), secrets.token_bytes(CHUNK_BYTES)
    begun = time.perf_counter()
    for number, at in enumerate(range(0, total, CHUNK_BYTES)):
        blobs.put(f"local/{number}", chunk[: total - at])
    return time.perf_counter() - begun


def watched(pid: int, stop: threading.Event) -> list[tuple[float, int]]:
    """Seconds since the beginning, and bytes resident."""
    begun, found = time.monotonic(), list[tuple[float, int]]()
    while not stop.wait(EVERY_S):
        found.append((round(time.monotonic() - begun, 1), resident_bytes(pid)))
    return found


def measured(
    folder: Path, members: int, upload_mb: float, processes: int, calls_per_s: int
) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"VEILSUM_DATA_DIR": str(folder / "data"), "VEILSUM_OPERATOR_TOKEN": TOKEN}
    serve = [sys.executable, "-m", "veilsum", "serve", "--port", str(port), "--json"]
    url, stop, memory = f"http://127.0.0.1:{port}", threading.Event(), list[tuple[float, int]]()
    with (folder / "log").open("wb") as log:
        coordinator = subprocess.Popen(serve, env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            _until_it_answers(port)
            watching = threading.Thread(target=lambda: memory.extend(watched(coordinator.pid, stop)))
            watching.start()
            command = [sys.executable, "-m", "veilsum", "bench", "service", "--url", url, "--json"]
            command += ["--members", str(members), "--upload-mb", str(upload_mb)]
            command += ["--processes", str(processes), "--calls-per-s", str(calls_per_s)]
            run = subprocess.run(
                command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=False
            )
            if run.returncode:
                raise SystemExit(run.stdout + (folder / "log").read_text()[-2000:])
            stop.set()
            watching.join()
        finally:
            stop.set()
            coordinator.terminate()
            coordinator.wait(30)
    facts: dict[str, Any] = json.loads(run.stdout)
    seconds = local(folder / "local", facts["bytes"])
    resident = [size for _, size in memory]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        **facts,
        "resident_mb_at_start": round(resident[0] / 1e6, 1),
        "resident_mb_at_most": round(max(resident) / 1e6, 1),
        "resident_mb_over_time": [
            (at, round(size / 1e6)) for at, size in memory[:: max(1, len(memory) // 40)]
        ],
        "local_write_and_sync_seconds": round(seconds, 3),
        "upload_over_local": round(facts["upload_seconds"] / seconds, 2),
    }


def _until_it_answers(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the coordinator does not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--upload-mb", type=float, default=0.5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--calls-per-s", type=int, default=100)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        values = (chosen.members, chosen.upload_mb, chosen.processes, chosen.calls_per_s)
        found = measured(Path(folder), *values)
    text = json.dumps(found, indent=2)
    print(text)
    if chosen.output:
        chosen.output.parent.mkdir(exist_ok=True)
        chosen.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
