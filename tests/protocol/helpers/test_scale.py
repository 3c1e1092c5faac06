"""Many clients: 200 in every run, 10,000 with 10,000 elements where VEILSUM_SLOW=1 asks for it."""

import json
import os
import resource
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import numpy as np
import pytest

from protocol.helpers.coordinator import Recovered
from protocol.helpers.simulator import ClientStop, HelperFederation, HelperStop

RUNS = Path(__file__).parents[3] / "runs"
slow = pytest.mark.skipif(os.environ.get("VEILSUM_SLOW") != "1", reason="takes minutes: set VEILSUM_SLOW=1")


class DiskSpool(MutableMapping[tuple[str, int], bytes]):
    """Chunks one after the other in a file; in memory, where each lies."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        self.size = 0

    def __setitem__(self, key: tuple[str, int], value: bytes) -> None:
        self._file.seek(self.size)
        self._file.write(value)
        self._places[key] = self.size, len(value)
        self.size += len(value)

    def __getitem__(self, key: tuple[str, int]) -> bytes:
        start, count = self._places[key]
        self._file.seek(start)
        return self._file.read(count)

    def __delitem__(self, key: tuple[str, int]) -> None:
        del self._places[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        self._file.close()


def run(spool: DiskSpool, clients: int, elements: int, chunk: int) -> None:
    dropped = set(range(0, clients, 10))
    federation = HelperFederation(
        clients,
        drop={i: ClientStop.ANNOUNCEMENT if i % 20 else ClientStop.OPENING for i in dropped},
        helper_drop={2: HelperStop.RECEIPT},
        spool=spool,
    )
    outcome = federation.run(federation.terms(elements, chunk_elements=chunk))
    assert isinstance(outcome.phase, Recovered)
    assert len(outcome.survivors) == clients - len(dropped)
    expected = np.zeros(elements, np.int64)
    for index in set(range(clients)) - dropped:
        expected += federation.vector(index, elements)
    assert np.array_equal(outcome.total, expected)  # type: ignore[arg-type]


def test_two_hundred_clients(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path / "spool")
    run(spool, clients=200, elements=1000, chunk=512)
    spool.close()


@slow
def test_ten_thousand_clients_in_bounded_memory(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path / "spool")
    before, begun_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run(spool, clients=10_000, elements=10_000, chunk=4096)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    found = {
        "clients": 10_000,
        "elements": 10_000,
        "cpu_s": round(time.process_time() - begun_s, 1),
        "grown_mb": round(grown_mb),
        "spooled_mb": round(spool.size / 1e6),
    }
    RUNS.mkdir(exist_ok=True)
    (RUNS / "helpers-scale.json").write_text(json.dumps(found, indent=2) + "\n")
    assert spool.size > 350e6
    assert grown_mb < 200  # what is said beside the vectors
    spool.close()
