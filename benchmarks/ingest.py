"""What the coordinator saves by adding each chunk as it arrives: uploads and their sum with and without, in alternation.

Each turn plays one round of real masked uploads over HTTP to a coordinator in its own process, `python -m benchmarks.ingest serve …`.
Every second coordinator has no memory for running sums, so it reads and verifies each stored chunk. The result is the median of the
coordinator's processor time from the round's opening to its end, because wall time is mostly that of the disk and the members. The
costs of a chunk's single steps are reported too.

    .venv/bin/python -m benchmarks.ingest --output runs/ingest.json
"""

import argparse
import asyncio
import hashlib
import json
import os
import platform
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np

from benchmarks.founding import question_of
from benchmarks.secure_sum import ROOT
from benchmarks.serving import TOKEN, coordinator
from service.coordination import catalogue
from service.storage.blobs import FileBlobs
from tests.support.clients import Everybody
from tests.support.party import Party
from tests.support.serving import Clock, Server
from veilsum.cli import main as veilsum
from veilsum.protocol.packing import add_packed
from veilsum.protocol.round_spec import CHUNK_ELEMENTS

T = TypeVar("T")
RING_BITS = 48
MEMBERS, DIM, CLASSES = 8, 256, 6000
"""1,574,896 elements: 9.4 MB from each member, and a small V, so that little else is computed."""
LIMIT_S = 600.0
KIND, RUNNING, STORED = "BENCHMARK_ADDS", "as it arrives", "from storage"
"""An environment variable that tells the coordinator's process how to add, and its values."""


def digest(chunk: bytes) -> bytes:
    return hashlib.sha256(chunk).digest()


def parts(folder: Path, chunks: int) -> dict[str, float]:
    """Measure processor milliseconds of each step, for a chunk of the maximum length."""
    chunk, blobs = secrets.token_bytes(CHUNK_ELEMENTS * RING_BITS // 8), FileBlobs(folder)
    total, found = np.zeros(CHUNK_ELEMENTS, np.uint64), defaultdict[str, list[float]](list)

    def part(name: str, work: Callable[[], T]) -> T:
        begun_s = time.process_time()
        result = work()
        found[name].append(1e3 * (time.process_time() - begun_s))
        return result

    for number in range(chunks):
        name = f"chunks/{number}"
        announced = part("hash on arrival", partial(digest, chunk))
        part("store", partial(blobs.put, name, chunk))
        stored = part("read", partial(blobs.get, name))
        assert part("verify", partial(digest, stored)) == announced
        part("add", partial(add_packed, total, stored, RING_BITS))
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


async def turn(folder: Path) -> dict[str, float]:
    """Play one round; return the coordinator's processor seconds, and wall seconds."""
    ids = tuple(f"m-{index}" for index in range(MEMBERS))
    party = Party(ids, dim=DIM, classes=CLASSES, question=question_of(MEMBERS, DIM, CLASSES, RING_BITS))
    with coordinator(folder, "benchmarks.ingest") as served:
        signing = Everybody(Clock(), TOKEN)
        async with httpx.AsyncClient(base_url=served.url, timeout=LIMIT_S, auth=signing) as client:
            server = Server(folder, None, client, Clock())
            round_id = await party.begun(server)
            begun_s, before_s = time.monotonic(), served.cpu_s
            view = await party.play(server, round_id)
            if view["state"] != "done":
                raise SystemExit(f"the round has {view['state']}: {view['fault']}")
            return {
                "cpu_s": round(served.cpu_s - before_s, 2),
                "wall_s": round(time.monotonic() - begun_s, 2),
            }


def alternating(turns: int) -> dict[str, list[dict[str, float]]]:
    """Play this many rounds of each kind in alternation, without counting the first of each."""
    found: dict[str, list[dict[str, float]]] = {RUNNING: [], STORED: []}
    for number in range(turns + 1):
        for kind in found:
            os.environ |= {
                KIND: kind,
                "OPENBLAS_NUM_THREADS": "1",
            }  # several threads would spin while they wait for each other
            with tempfile.TemporaryDirectory(prefix="veilsum-ingest-") as folder:
                took = asyncio.run(turn(Path(folder)))
            sys.stderr.write(f"turn {number}, {kind}: {took}\n")
            found[kind] += [took] if number else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=60)
    parser.add_argument("--turns", type=int, default=5, help="rounds of each kind")
    parser.add_argument("--output", type=Path, default=ROOT / "runs/ingest.json")
    given = parser.parse_args()
    turns = alternating(given.turns)
    medians = {
        kind: {name: statistics.median(each[name] for each in took) for name in ("cpu_s", "wall_s")}
        for kind, took in turns.items()
    }
    with tempfile.TemporaryDirectory(prefix="veilsum-ingest-") as folder:
        found: dict[str, Any] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}",
            "uploads": {"members": MEMBERS, "elements": DIM * (DIM + 1) // 2 + (DIM + 1) * CLASSES},
            "turns": turns,
            "medians": medians,
            "ratio": {
                name: round(medians[RUNNING][name] / medians[STORED][name], 3) for name in ("cpu_s", "wall_s")
            },
            "chunk_bytes": CHUNK_ELEMENTS * RING_BITS // 8,
            "chunk_processor_ms": parts(Path(folder), given.chunks),
        }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        if os.environ[KIND] == STORED:
            catalogue.RUNNING_SUMS_BYTES = 0
        veilsum()
    main()
