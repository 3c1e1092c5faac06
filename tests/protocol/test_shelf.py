"""Where announcements are kept, and what is read of them again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from service.shelf import FileShelf
from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Checking
from veilsum.protocol.merkle import verify
from veilsum.protocol.messages import Delivery, Upload
from veilsum.protocol.shelf import Announced, MemoryShelf, Shelf, Trees


@pytest.fixture(scope="module")
def uploads() -> dict[str, Upload]:
    """What four members have announced, vectors of two chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 64)
        federation = Federation(4)
        federation.reach(Checking)
    found = {}
    for member, phase in federation.phases.items():
        (upload,) = phase.outbox()
        assert isinstance(upload, Upload)
        found[member] = upload
    return found


@pytest.mark.parametrize("make", [lambda _: MemoryShelf(), FileShelf], ids=["memory", "file"])
def test_a_shelf_gives_each_decryptor_its_part_with_paths_to_what_was_signed(
    uploads: dict[str, Upload], tmp_path: Path, make: Callable[[Path], Shelf]
) -> None:
    shelf = make(tmp_path)
    for upload in (replace(uploads["member-1"], boxes=(b"",) * 4), *uploads.values()):
        shelf.put(upload, Trees.of(upload))  # a dealer's last announcement counts
    for member, upload in uploads.items():
        for place in range(4):
            delivery = Delivery.from_bytes(shelf.delivery(member, place))
            assert delivery.header == upload.header
            assert (delivery.box, delivery.row) == (upload.boxes[place], upload.share_rows[place])
            assert verify(upload.header.box_root, delivery.box, place, 4, delivery.box_path)
            assert verify(upload.header.commitment_root, delivery.row, 1 + place, 5, delivery.row_path)
            assert shelf.row(member, place) == delivery.row
            assert delivery == Trees.of(upload).delivery(upload, place)


def test_a_coordinator_keeps_digests_in_memory_and_reads_commitments_from_the_shelf(
    uploads: dict[str, Upload],
) -> None:
    federation = Federation(4)
    phase = federation.reach(Checking)
    upload, announced = uploads["member-2"], phase.uploads["member-2"]
    assert announced.header == upload.header
    assert [announced.chunk_digest(index) for index in range(2)] == list(upload.chunk_digests)
    committed = announced.committed
    assert [committed.entry(index) for index in range(4)] == list(upload.secret_commitments)
    assert verify(upload.header.commitment_root, committed.commitments, 0, 5, committed.path)
    assert phase.setting.shelf.committed("member-2") == committed == Trees.of(upload).committed(upload)
    # What an announcement holds itself does not grow with its secrets: a hundred would be 1.6 KB.
    held = [getattr(announced, name) for name in Announced.__slots__]
    assert held == [announced.header, announced.chunk_digests, phase.setting.shelf]
