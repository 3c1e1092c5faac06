from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.coordination.catalogue import FileShelf
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, SeededRandom, of
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Checking, Recovered
from veilsum.protocol.errors import Misuse
from veilsum.protocol.member import Opened, Uploaded
from veilsum.protocol.merkle import verify_path
from veilsum.protocol.messages import Delivery, Upload
from veilsum.protocol.shelf import MemoryShelf, Shelf, Trees


def opened(federation: Federation, member: str) -> Opened:
    phase, _ = federation.ask(member, federation.phase.attempt.opening, Opened)
    return phase


@pytest.fixture
def federation() -> Federation:
    federation = Federation(5, question={"ring_bits": 48})
    federation.begin()
    return federation


def sealed(phase: Opened, federation: Federation, seed: int = 1) -> tuple[list[bytes], Upload, bytes]:
    sealing = phase.begin_sealing(SeededRandom(seed))
    chunks = [
        bytes(sealing.mask_next_chunk(np.arange(64))),
        bytes(sealing.mask_next_chunk(np.arange(64, 99))),
    ]
    upload, own = sealing.finish(federation.keys[phase.member])
    return chunks, upload, own


def test_a_stored_upload_has_the_same_chunks_again_in_any_order(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    chunks, upload, own = sealed(phase, federation)
    stored, _ = phase.store_upload(upload, SecretBytes(own))
    assert isinstance(stored, Uploaded)
    again = stored.sealed_again(SecretBytes(SeededRandom(1)(32)))
    assert bytes(again.mask_chunk(1, np.arange(64, 99))) == chunks[1]
    assert bytes(again.mask_chunk(0, np.arange(64))) == chunks[0]


def test_no_commitment_depends_on_the_vector(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    uploads = []
    for values in (np.zeros(99, np.int64), np.full(99, 2**47 - 1)):
        sealing = phase.begin_sealing(SeededRandom(1))
        sealing.mask_next_chunk(values[:64])
        sealing.mask_next_chunk(values[64:])
        upload, _ = sealing.finish(federation.keys["member-2"])
        uploads.append(upload)
    one, two = uploads
    assert one.chunk_digests != two.chunk_digests
    assert (one.secret_commitments, one.share_rows, one.boxes) == (
        two.secret_commitments,
        two.share_rows,
        two.boxes,
    )


def seal(phase: Opened, federation: Federation, *sizes: int) -> None:
    sealing = phase.begin_sealing(SeededRandom(1))
    for elements in sizes:
        sealing.mask_next_chunk(np.zeros(elements, np.int64))
    sealing.finish(federation.keys[phase.member])


@pytest.mark.parametrize("elements", [0, 63, 65])
def test_a_chunk_of_another_length_is_not_masked(federation: Federation, elements: int) -> None:
    sealing = opened(federation, "member-0").begin_sealing(SeededRandom(1))
    with pytest.raises(Misuse):
        sealing.mask_next_chunk(np.zeros(elements, np.int64))


@pytest.mark.parametrize("sizes", [(0,), (63,), (65,), (64, 35, 35), (64,)], ids=str)
def test_other_chunks_than_the_attempts_are_a_misuse(federation: Federation, sizes: tuple[int, ...]) -> None:
    with pytest.raises(Misuse):
        seal(opened(federation, "member-0"), federation, *sizes)


@pytest.fixture(scope="module")
def recovered() -> tuple[Federation, Recovered]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 64)
        federation = Federation(6, drop={2: After.CARD, 5: After.OPENING})
        federation.begin()
        phase = of(Recovered, federation.run_until())
        assert phase.attempt.chunk_count == 2
        return federation, phase


def packed(federation: Federation, index: int, members: tuple[str, ...]) -> list[tuple[str, bytes]]:
    return [(member, federation.spool[member, index]) for member in members]


def test_chunks_in_any_order_give_the_sum(recovered: tuple[Federation, Recovered]) -> None:
    federation, phase = recovered
    unmasking = phase.prepare_unmasking()
    assert unmasking.survivors == ("member-0", "member-1", "member-3", "member-4")
    total = sum(federation.vectors_now[member] for member in unmasking.survivors)
    for index in (1, 0, 1):
        chunk = unmasking.sum_chunk(index, packed(federation, index, unmasking.survivors[::-1]))
        assert np.array_equal(chunk, np.asarray(total)[64 * index : 64 * index + 64])


@pytest.mark.parametrize(
    "members", [(), ("member-0",), ("member-0",) * 4, ("member-0", "member-1", "member-3", "member-5")]
)
def test_any_others_than_the_survivors_are_a_misuse(
    recovered: tuple[Federation, Recovered], members: tuple[str, ...]
) -> None:
    federation, phase = recovered
    chunk = federation.spool["member-0", 0]
    with pytest.raises(Misuse):
        phase.prepare_unmasking().sum_chunk(0, [(member, chunk) for member in members])


@pytest.mark.parametrize("bad", [b"", bytes(139), bytes(141)], ids=["empty", "short", "long"])
def test_a_chunk_that_is_not_packed_as_it_should_be_names_its_member(
    recovered: tuple[Federation, Recovered], bad: bytes
) -> None:
    _, phase = recovered
    with refused("chunk-mismatch", "member-3"):
        phase.prepare_unmasking().sum_chunk(1, [("member-3", bad)])


# Where announcements are kept, and what is read of them again


@pytest.fixture(scope="module")
def uploads() -> dict[str, Upload]:
    """Return the announcements of four members, with vectors of two chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 64)
        federation = Federation(4)
        federation.reach(Checking)
    found = {}
    for member, phase in federation.phases.items():
        (upload,) = phase.messages_to_resend()
        assert isinstance(upload, Upload)
        found[member] = upload
    return found


@pytest.mark.parametrize("make", [lambda _: MemoryShelf(), FileShelf], ids=["memory", "file"])
def test_a_shelf_gives_each_decryptor_its_part_with_paths_to_what_was_signed(
    uploads: dict[str, Upload], tmp_path: Path, make: Callable[[Path], Shelf]
) -> None:
    shelf = make(tmp_path)
    for upload in (replace(uploads["member-1"], boxes=(b"",) * 4), *uploads.values()):
        shelf.store_announcement(upload, Trees.from_upload(upload))  # a dealer's last announcement counts
    for member, upload in uploads.items():
        for place in range(4):
            delivery = Delivery.from_bytes(shelf.read_delivery(member, place))
            assert delivery.header == upload.header
            assert (delivery.box, delivery.row) == (upload.boxes[place], upload.share_rows[place])
            assert verify_path(upload.header.box_root, delivery.box, place, 4, delivery.box_path)
            assert verify_path(upload.header.commitment_root, delivery.row, 1 + place, 5, delivery.row_path)
            assert shelf.read_row(member, place) == delivery.row
            assert delivery == Trees.from_upload(upload).delivery_to(upload, place)
