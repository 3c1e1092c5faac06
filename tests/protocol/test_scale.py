"""Cohorts with a sparse graph and a drawn committee, whose members, chunks and announcements lie on disk.

Thousands of them: `python -m benchmarks.scale`.
"""

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.disk import Folder
from protocol.causes import Cause
from protocol.coordinator import Checking, Ended, Freezing, Recovered
from protocol.errors import PeerFault
from protocol.member import Closed, Uploaded
from protocol.messages import Upload
from protocol.ring import Ring
from protocol.shelf import MemoryShelf, Trees
from protocol.simulator import After, Federation, Outcome, Vector
from protocol.storage import Generated, Unwritten

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


@pytest.mark.parametrize("members", [3, 5, 6])
def test_where_things_are_kept_changes_no_byte(tmp_path: Path, members: int) -> None:
    memory, disk = Federation(members), Federation(members, storage=Folder(tmp_path))
    for federation in (memory, disk):
        for _ in range(2):
            federation.run_round()
    assert dict(memory.spool) == dict(disk.spool)
    assert len(memory.spool) == len(disk.spool)
    assert list(memory.phases) == list(disk.phases)
    for member in memory.ids:
        assert memory.phases[member].to_bytes() == disk.phases[member].to_bytes()
    assert memory.links == disk.links
    assert len(memory.transcript.entries) > 3
    assert disk.transcript.entries == ()


def test_a_shelf_on_disk_gives_what_was_put_there(tmp_path: Path) -> None:
    federation = Federation(6)
    federation.begin()
    federation.run_until(Checking)
    memory, disk = MemoryShelf(), Folder(tmp_path).shelf()
    for dealer in federation.ids:
        (upload,) = federation.phases[dealer].outbox()
        assert isinstance(upload, Upload)
        for shelf in (memory, disk):
            shelf.put(upload, Trees.of(upload))
            shelf.put(upload, Trees.of(upload))
    for dealer in federation.ids:
        for place in range(6):
            assert disk.delivery(dealer, place) == memory.delivery(dealer, place)
            assert disk.row(dealer, place) == memory.row(dealer, place)


def test_a_folder_holds_phases_and_chunks_until_they_are_deleted(tmp_path: Path) -> None:
    with Federation(3, storage=Folder(tmp_path)) as federation:
        federation.run_round()
        assert len(federation.phases) == 3
        key = next(iter(federation.spool))
        del federation.spool[key]
        with pytest.raises(KeyError):
            federation.spool[key]
        with pytest.raises(KeyError):
            federation.phases["nobody"]
    assert len(federation.phases) == 0
    assert not list((tmp_path / "phases").iterdir())


def test_vectors_are_made_whenever_they_are_asked_for() -> None:
    made: list[str] = []

    def make(member: str) -> Vector:
        made.append(member)
        return np.arange(3)

    vectors = Generated(("a", "b"), make)
    assert [vectors["b"].tolist(), vectors["b"].tolist()] == [[0, 1, 2], [0, 1, 2]]
    assert made == ["b", "b"]
    assert (list(vectors), len(vectors)) == (["a", "b"], 2)


def test_a_transcript_that_nobody_reads_stays_empty() -> None:
    federation = Federation(4)
    federation.run_round(federation.vectors(4))
    read, unread = federation.transcript, Unwritten(())
    phase = federation.phase
    fault = PeerFault(Cause.SHARE_INVALID)
    assert unread.received(read.messages()[-1], phase, phase) is unread
    assert unread.refused(read.messages()[-1], fault) is unread
    assert unread.moved(phase, phase) is unread
    assert unread.signed(federation.coordinator, phase.attempt.context) is unread
    assert unread.entries == ()
