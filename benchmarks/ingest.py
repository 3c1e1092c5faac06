"""What a chunk's way through the coordinator takes, part by part: hashed as it arrives, stored, read again, verified and added.

Processor time, medians, so that neither the disk nor other processes matter. HTTP and the event's commit are left out.

    .venv/bin/python -m benchmarks.ingest
"""

import argparse
import hashlib
import json
import secrets
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from service.storage.blobs import FileBlobs
from veilsum.protocol.packing import add_packed
from veilsum.protocol.round_spec import CHUNK_ELEMENTS

T = TypeVar("T")
RING_BITS = 48


def digest(chunk: bytes) -> bytes:
    return hashlib.sha256(chunk).digest()


def measured(folder: Path, chunks: int) -> dict[str, float]:
    """Milliseconds of each part, for a chunk of the greatest length."""
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=60)
    with tempfile.TemporaryDirectory(prefix="veilsum-ingest-") as folder:
        found = measured(Path(folder), parser.parse_args().chunks)
    print(json.dumps({"chunk_bytes": CHUNK_ELEMENTS * RING_BITS // 8, "processor_ms": found}, indent=2))


if __name__ == "__main__":
    main()
