"""Where the simulator keeps what parties hold: in memory, on disk, or nowhere."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.disk import Folder
from tests.support.simulator import Federation, Vector
from tests.support.storage import Generated, Unwritten
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Upload
from veilsum.protocol.shelf import MemoryShelf, Trees


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
        assert disk.committed(dealer) == memory.committed(dealer)
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
    federation.run_round(federation.vectors())
    read, unread = federation.transcript, Unwritten(())
    phase = federation.phase
    fault = PeerFault(Cause.SHARE_INVALID)
    assert unread.received(read.messages()[-1], phase, phase) is unread
    assert unread.refused(read.messages()[-1], fault) is unread
    assert unread.moved(phase, phase) is unread
    assert unread.signed(federation.coordinator, phase.attempt.context) is unread
    assert unread.entries == ()
