"""A client's upload: masks, boxes and commitments, held against the primitives themselves."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.helper import Enrolled
from protocol.helpers.messages import HelperUpload
from protocol.helpers.sealing import HelperSealing, open_box, seed_commitment
from protocol.helpers.simulator import HelperFederation
from protocol.packing import unpack


def info(name: str, *fields: bytes) -> bytes:
    text = b"veilsum/2/" + name.encode() + b"\0"
    return text + b"".join(len(f).to_bytes(8, "little") + f for f in fields)


@pytest.fixture
def opened(federation: HelperFederation) -> HelperFederation:
    federation.begin(federation.terms(100, chunk_elements=96))
    return federation


def private_of(federation: HelperFederation, place: int) -> bytes:
    phase = federation.phases[federation.helpers[place]]
    return bytes(phase.private)  # type: ignore[attr-defined]  # Opened


def unsealed(federation: HelperFederation, upload: HelperUpload, place: int) -> list[bytes]:
    """The three seeds, opened with nothing but the specification."""
    context, header = federation.attempt.context, upload.header
    private = X25519PrivateKey.from_private_bytes(private_of(federation, place))
    shared = private.exchange(X25519PublicKey.from_public_bytes(header.sender_key))
    card = federation.attempt.manifest.cards[place]
    names = info("helper-box", header.member.encode(), card.member.encode(), header.sender_key, card.box_key)
    key = HKDF(SHA256(), 32, context, names).derive(shared)
    plain = AESGCM(key).decrypt(bytes(12), upload.boxes[place], context)
    return [plain[i : i + 32] for i in range(0, 96, 32)]


def test_an_upload_is_the_vector_under_four_keystreams(opened: HelperFederation) -> None:
    upload = opened._speak(2)
    first, second = unsealed(opened, upload, 0), unsealed(opened, upload, 1)
    seeds = [second[0], *first]
    assert second == [seeds[0], *seeds[2:]]
    assert unsealed(opened, upload, 2) == [seeds[0], seeds[1], seeds[3]]
    assert unsealed(opened, upload, 3) == seeds[:3]
    words = np.concatenate([unpack(opened.spool["client-2", i], 32, size) for i, size in enumerate((96, 4))])
    for seed in seeds:
        stream = Cipher(AES256(seed), CTR(bytes(16))).encryptor().update(bytes(400))
        words = words - np.frombuffer(stream, "<u4")
    assert np.array_equal(words.view(np.int32), opened.vector(2, 100))
    context = opened.attempt.context
    for index, seed in enumerate(seeds):
        preimage = info("helper-seed", context, b"client-2", bytes([index]), seed)
        assert upload.commitments[index] == hashlib.sha256(preimage).digest()


def test_a_helper_opens_its_box_and_nobody_else_s(opened: HelperFederation) -> None:
    upload, attempt = opened._speak(0), opened.attempt
    seeds = open_box(attempt, "helper-1", private_of(opened, 1), upload.delivery(1))
    assert len(seeds) == 96
    for place, private in ((2, private_of(opened, 1)), (1, private_of(opened, 2))):
        with pytest.raises(PeerFault, match=r"^box-refused: .* \[client-0\]$"):
            open_box(attempt, "helper-1", private, upload.delivery(place))


def test_a_box_copied_by_another_client_does_not_open(opened: HelperFederation, resign: Any) -> None:
    # a colluder that takes over a victim's key, boxes and commitments under its own name and signature
    victim = opened._speak(0)
    header = replace(victim.header, member="client-1")
    copied = resign(opened, replace(victim, header=header))
    opened.attempt.check_header(copied.header)
    with pytest.raises(PeerFault, match=r"^box-refused: the box from client-1"):
        open_box(opened.attempt, "helper-0", private_of(opened, 0), copied.delivery(0))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_seed_that_misses_its_commitment_is_refused(opened: HelperFederation, index: int) -> None:
    delivery = opened._speak(0).delivery(0)
    commitments = list(delivery.commitments)
    commitments[index] = bytes(32)
    with pytest.raises(PeerFault) as refused:
        open_box(
            opened.attempt,
            "helper-0",
            private_of(opened, 0),
            replace(delivery, commitments=tuple(commitments)),
        )
    assert (refused.value.cause, refused.value.parties) == (Cause.BOX_REFUSED, ("client-0",))


def test_a_sender_key_of_low_order_is_refused(opened: HelperFederation, resign: Any) -> None:
    forged = resign(opened, opened._speak(0), sender_key=bytes(32))
    with pytest.raises(PeerFault) as refused:
        open_box(opened.attempt, "helper-0", private_of(opened, 0), forged.delivery(0))
    assert (refused.value.cause, refused.value.parties) == (Cause.LOW_ORDER_POINT, ("client-0",))


def test_commitments_bind_context_client_and_index() -> None:
    seed, context = bytes(32), b"\xc7" * 32
    made = {
        seed_commitment(context, "ann", 0, seed),
        seed_commitment(bytes(32), "ann", 0, seed),
        seed_commitment(context, "bob", 0, seed),
        seed_commitment(context, "ann", 1, seed),
        seed_commitment(context, "ann", 0, b"\x01" * 32),
    }
    assert len(made) == 5
    assert {len(commitment) for commitment in made} == {32}


def test_two_uploads_of_one_client_share_no_secret(opened: HelperFederation) -> None:
    once = opened._speak(0)
    del opened.states["client-0"]  # a client that has lost its state speaks again
    again = opened._speak(0)
    assert once.header.sender_key != again.header.sender_key
    assert not set(once.commitments) & set(again.commitments)
    assert not set(once.boxes) & set(again.boxes)


def test_chunks_come_in_order_whole_and_within_the_ring(opened: HelperFederation) -> None:
    sealing = HelperSealing(opened.attempt, "client-0")
    with pytest.raises(Misuse, match="does not have 95 elements"):
        sealing.chunk(np.zeros(95, np.int64))
    with pytest.raises(Misuse, match="outside the centred range"):
        sealing.chunk(np.full(96, 1 << 31))
    sealing.chunk(np.zeros(96, np.int64))
    values: dict[str, Any] = {"lineage": bytes(8), "records_tag": bytes(8), "records": 1}
    with pytest.raises(Misuse, match="1 of 2 chunks are masked"):
        sealing.finish(opened.keys["client-0"], **values)
    sealing.chunk(np.zeros(4, np.int64))
    with pytest.raises(Misuse, match="chunk 2 of 2"):
        sealing.chunk(np.zeros(4, np.int64))
    with pytest.raises(PeerFault, match=r"^too-many-records: 1001 records, this attempt's cap is 1000"):
        sealing.finish(opened.keys["client-0"], **{**values, "records": 1001})
    assert isinstance(sealing.finish(opened.keys["client-0"], **values), HelperUpload)


def test_the_box_key_is_the_one_of_the_card(opened: HelperFederation) -> None:
    fresh = HelperFederation(8)
    phase, [card] = fresh.phases["helper-0"].enrol(fresh.keys["helper-0"], expires_s=9)  # type: ignore[attr-defined]  # Standing
    assert isinstance(phase, Enrolled)
    assert X25519PrivateKey.from_private_bytes(phase.private).public_key().public_bytes_raw() == card.box_key
