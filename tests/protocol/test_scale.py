"""Cohorts with a sparse graph and a drawn committee, whose members, chunks and announcements lie on disk.

Thousands of them: `python -m benchmarks.scale`.
"""

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.disk import Folder
from protocol.coordinator import Checking, Ended, Freezing, Recovered
from protocol.member import Closed, Uploaded
from protocol.ring import Ring
from protocol.simulator import After, Federation, Outcome, Vector

MEMBERS = 210
ELEMENTS = 64
BYTES_A_MEMBER = 4096


def number(member: str) -> int:
    return int(member.removeprefix("member-"))


def vector(member: str) -> Vector:
    """Uniform over a ring of 32 bits."""
    return np.random.default_rng(number(member)).integers(-(2**31), 2**31, ELEMENTS, np.int64)


def plain_sum(members: tuple[str, ...]) -> Vector:
    ring = Ring(32)
    total = np.zeros(ELEMENTS, np.uint32)
    for member in members:
        total += ring.to_ring(vector(member))
    return ring.lift(total)


@dataclass
class Rounds:
    """Two rounds of one cohort, in the first of which some are lost."""

    federation: Federation
    lost: str
    first: Outcome
    second: Outcome
    bytes_a_member: list[float]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    """With so few colluders that 210 members need 10 neighbours and 7 decryptors."""
    folder = tmp_path_factory.mktemp("stores")
    Federation(3, storage=Folder(folder / "warm")).run_round()  # what a first round caches counts for nobody
    gc.collect()
    tracemalloc.start()
    try:
        federation = Federation(MEMBERS, colluders=2, loss=10, storage=Folder(folder))
        lost, *_ = bystanders = sorted(set(federation.ids) - set(federation.manifest.decryptors))
        one, other, *_ = federation.manifest.decryptors
        federation.drop = {number(lost): After.OPENING, number(one): After.UPLOAD, number(other): After.VOTE}
        federation.begin(vector, federation.terms(ELEMENTS, chunk_elements=24))
        bytes_a_member = []
        for phase in (Checking, Freezing, Ended):
            federation.run_until(phase)
            # Else the store still holds whom it gave last: a decryptor, with shares of everybody.
            assert isinstance(federation.phases[bystanders[-1]], Uploaded | Closed)
            gc.collect()
            bytes_a_member.append(tracemalloc.get_traced_memory()[0] / MEMBERS)
    finally:
        tracemalloc.stop()
    first = federation.finish()
    federation.drop = {}
    with federation:
        second = federation.run_round(vector, federation.terms(ELEMENTS))
        yield Rounds(federation, lost, first, second, bytes_a_member)


def test_a_sparse_round_is_exact_whoever_is_lost_and_when(rounds: Rounds) -> None:
    manifest, outcome = rounds.federation.manifest, rounds.first
    assert (manifest.degree, len(manifest.decryptors), manifest.threshold) == (10, 7, 5)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == tuple(member for member in manifest.members if member != rounds.lost)
    assert outcome.total is not None
    assert np.array_equal(outcome.total, plain_sum(outcome.survivors))
    # Nobody but its neighbours shared a mask with who was lost.
    neighbours = manifest.graph.neighbours(rounds.lost)
    assert set(outcome.phase.edge_seeds) == {(neighbour, rounds.lost) for neighbour in neighbours}


def test_who_was_lost_takes_part_in_the_next_round(rounds: Rounds) -> None:
    outcome = rounds.second
    assert (rounds.first.faults, outcome.faults) == ((), ())
    assert outcome.survivors == rounds.federation.ids
    assert outcome.total is not None
    assert np.array_equal(outcome.total, plain_sum(outcome.survivors))


def test_a_member_costs_4_kib_of_memory_in_any_phase(rounds: Rounds) -> None:
    assert len(rounds.bytes_a_member) == 3
    assert max(rounds.bytes_a_member) < BYTES_A_MEMBER, rounds.bytes_a_member
