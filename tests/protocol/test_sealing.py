import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.support.simulator import Federation, SeededRandom
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.errors import Misuse
from veilsum.protocol.keys import PairKey
from veilsum.protocol.member import Opened, Uploaded
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import Upload, edge_commitment, self_commitment, share_commitment
from veilsum.protocol.sealing import unseal
from veilsum.protocol.shamir import recover_secrets


def opened(federation: Federation, member: str) -> Opened:
    phase, _ = federation.ask(member, federation.phase.attempt.opening, Opened)
    return phase


@pytest.fixture
def federation() -> Federation:
    federation = Federation(5, question={"ring_bits": 48})
    federation.begin()
    return federation


def keystream(seed: bytes, elements: int) -> npt.NDArray[np.uint64]:
    stream = Cipher(AES256(seed), CTR(bytes(16))).encryptor().update(bytes(8 * elements))
    return np.frombuffer(stream, "<u8")


def sealed(phase: Opened, federation: Federation, seed: int = 1) -> tuple[list[bytes], Upload, bytes]:
    sealing = phase.seal(SeededRandom(seed))
    chunks = [bytes(sealing.chunk(np.arange(64))), bytes(sealing.chunk(np.arange(64, 99)))]
    upload, own = sealing.finish(federation.keys[phase.member])
    return chunks, upload, own


def pairs_of(phase: Opened) -> tuple[dict[str, PairKey], dict[str, PairKey]]:
    """Mask keys and box keys by peer."""
    return {pair.peer: pair for pair in phase.ready.masks}, {pair.peer: pair for pair in phase.ready.boxes}


def test_an_upload_is_the_vector_under_its_masks(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    context, (masks, _) = phase.attempt.context, pairs_of(phase)
    chunks, _, _ = sealed(phase, federation)
    b = SeededRandom(1)(32)  # the first 32 bytes drawn are b_u
    y = np.arange(99, dtype=np.uint64) + keystream(b, 99)
    for peer in ("member-3", "member-4"):  # sgn(v − u) = +1
        y += keystream(masks[peer].mask_seed("member-2", context), 99)
    for peer in ("member-0", "member-1"):  # sgn(v − u) = −1
        y -= keystream(masks[peer].mask_seed("member-2", context), 99)
    packed = b"".join((int(word) % 2**48).to_bytes(6, "little") for word in y)
    assert b"".join(chunks) == packed


def test_a_stored_upload_has_the_same_chunks_again_in_any_order(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    chunks, upload, own = sealed(phase, federation)
    stored, _ = phase.uploaded(upload, SecretBytes(own))
    assert isinstance(stored, Uploaded)
    again = stored.sealed_again(SecretBytes(SeededRandom(1)(32)))
    assert bytes(again.packed(1, np.arange(64, 99))) == chunks[1]
    assert bytes(again.packed(0, np.arange(64))) == chunks[0]


def test_commitments_are_to_the_seeds_the_masks_are_made_of(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    context, (masks, _) = phase.attempt.context, pairs_of(phase)
    _, upload, _ = sealed(phase, federation)
    assert upload.secret_commitments[0] == self_commitment(context, "member-2", SeededRandom(1)(32))
    for index, peer in enumerate(("member-0", "member-1", "member-3", "member-4"), start=1):
        seed = masks[peer].mask_seed("member-2", context)
        assert upload.secret_commitments[index] == edge_commitment(context, "member-2", peer, seed)
        assert upload.secret_commitments[index] == edge_commitment(context, peer, "member-2", seed)


def test_boxes_hold_shares_true_to_their_commitments_that_recover_the_seeds(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    context, (masks, boxes) = phase.attempt.context, pairs_of(phase)
    _, upload, own = sealed(phase, federation)
    shares = []
    for place, decryptor in enumerate(federation.ids):
        if decryptor == "member-2":
            assert upload.boxes[place] == b""
            shares.append(own)
        else:
            key = boxes[decryptor].box_key("member-2", decryptor, context, upload.header.salt)
            shares.append(unseal(key, upload.boxes[place], context, "member-2"))
        for index in range(5):
            share = shares[place][36 * index : 36 * index + 36]
            committed = upload.share_rows[place][16 * index : 16 * index + 16]
            assert share_commitment(context, "member-2", decryptor, index, share) == committed
    seeds = [
        SeededRandom(1)(32),
        *(masks[p].mask_seed("member-2", context) for p in phase.attempt.neighbours("member-2")),
    ]
    assert recover_secrets([4, 0, 2, 3], [shares[i] for i in (4, 0, 2, 3)]) == seeds


def test_the_header_signs_the_roots_of_all_that_is_sent(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    chunks, upload, _ = sealed(phase, federation)
    header = upload.header
    assert upload.chunk_digests == tuple(hashlib.sha256(chunk).digest() for chunk in chunks)
    assert header.chunk_root == Tree(upload.chunk_digests).root
    assert header.commitment_root == Tree([b"".join(upload.secret_commitments), *upload.share_rows]).root
    assert header.box_root == Tree(upload.boxes).root
    header.verify(federation.keys["member-2"].public)


def test_no_commitment_depends_on_the_vector(federation: Federation) -> None:
    phase = opened(federation, "member-2")
    uploads = []
    for values in (np.zeros(99, np.int64), np.full(99, 2**47 - 1)):
        sealing = phase.seal(SeededRandom(1))
        sealing.chunk(values[:64])
        sealing.chunk(values[64:])
        upload, _ = sealing.finish(federation.keys["member-2"])
        uploads.append(upload)
    one, two = uploads
    assert one.chunk_digests != two.chunk_digests
    assert (one.secret_commitments, one.share_rows, one.boxes) == (
        two.secret_commitments,
        two.share_rows,
        two.boxes,
    )


@pytest.mark.parametrize("elements", [0, 63, 65])
def test_a_chunk_of_another_length_is_a_misuse(federation: Federation, elements: int) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    with pytest.raises(Misuse, match=f"chunk 0 of 2 does not have {elements} elements"):
        sealing.chunk(np.zeros(elements, np.int64))


def test_a_chunk_too_many_is_a_misuse(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    sealing.chunk(np.zeros(64, np.int64))
    sealing.chunk(np.zeros(35, np.int64))
    with pytest.raises(Misuse, match="chunk 2 of 2"):
        sealing.chunk(np.zeros(35, np.int64))


def test_a_value_outside_the_ring_is_a_misuse_that_does_not_show_it(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    values = np.zeros(64, np.int64)
    values[3] = 2**47
    with pytest.raises(Misuse, match="element 3 is outside") as caught:
        sealing.chunk(values)
    assert str(2**47) not in str(caught.value)


def test_an_upload_without_all_its_chunks_is_a_misuse(federation: Federation) -> None:
    sealing = opened(federation, "member-0").seal(SeededRandom(1))
    sealing.chunk(np.zeros(64, np.int64))
    with pytest.raises(Misuse, match="1 of 2 chunks are masked"):
        sealing.finish(federation.keys["member-0"])
