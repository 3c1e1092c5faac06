import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import (
    Deliveries,
    Delivery,
    Message,
    Receipt,
    Upload,
    UploadHeader,
    edge_commitment,
    self_commitment,
    share_commitment,
)

KEY = SigningKey(b"\x0a" * 32)

HEADER = UploadHeader(
    context=b"\xc7" * 32,
    member="ann",
    lineage=b"\x11" * 8,
    records=b"\x4e" * 8,
    salt=b"\x5a" * 32,
    chunk_root=b"\x01" * 32,
    commitment_root=b"\x02" * 32,
    box_root=b"\x03" * 32,
    signature=b"\x5e" * 64,
)
HEADER_HEX = "".join(
    (
        "c7" * 32,  # context
        "03616e6e",  # member: "ann"
        "11" * 8,  # lineage
        "4e" * 8,  # records
        "5a" * 32,  # salt
        "01" * 32,  # chunk_root
        "02" * 32,  # commitment_root
        "03" * 32,  # box_root
        "5e" * 64,  # signature
    )
)

UPLOAD = Upload(
    header=HEADER,
    chunk_digests=(b"\xcd" * 32,),
    secret_commitments=(b"\x51" * 16, b"\x52" * 16),
    share_rows=(b"\x61" * 32,),
    boxes=(b"", b"\xb0\xb1"),
)
UPLOAD_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "05",  # kind: upload
            HEADER_HEX,  # header
            "01000000" + "cd" * 32,  # chunk_digests: one
            "02000000" + "51" * 16 + "52" * 16,  # secret_commitments: two
            "01000000" + "20000000" + "61" * 32,  # share_rows: one of 32 bytes
            "02000000" + "00000000" + "02000000" + "b0b1",  # boxes: none, and one of 2 bytes
        )
    )
)

DELIVERIES = Deliveries(
    context=b"\xc7" * 32,
    deliveries=(
        Delivery(
            header=HEADER, box=b"\xb0", box_path=(b"\x70" * 32,), row=b"\x61\x62", row_path=(b"\x71" * 32,)
        ),
    ),
)
DELIVERIES_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "06",  # kind: deliveries
            "c7" * 32,  # context
            "01000000",  # deliveries: one
            HEADER_HEX,  # header
            "01000000" + "b0",  # box
            "01000000" + "70" * 32,  # box_path
            "02000000" + "6162",  # row
            "01000000" + "71" * 32,  # row_path
        )
    )
)

RECEIPT = Receipt(
    context=b"\xc7" * 32, member="bob", dealers=("ann",), complaints=("eve",), signature=b"\x5e" * 64
)
RECEIPT_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "07",  # kind: receipt
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "01000000" + "03616e6e",  # dealers: "ann"
            "01000000" + "03657665",  # complaints: "eve"
            "5e" * 64,  # signature
        )
    )
)


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/1/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


@pytest.mark.parametrize(
    ("message", "wire"),
    [(UPLOAD, UPLOAD_WIRE), (DELIVERIES, DELIVERIES_WIRE), (RECEIPT, RECEIPT_WIRE)],
    ids=["upload", "deliveries", "receipt"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_the_upload_digest_is_the_hash_of_its_preimage() -> None:
    preimage = (b"\xc7" * 32, b"ann", b"\x11" * 8, b"\x4e" * 8, b"\x5a" * 32)
    roots = (b"\x01" * 32, b"\x02" * 32, b"\x03" * 32)
    assert HEADER.digest == h(b"upload-digest", *preimage, *roots)
    assert HEADER.digest.hex() == "833d88003fd495c1de956339fa1ad52e5185cc335c9409b59b2d9ec2ee5ece51"


def test_the_member_signs_lineage_records_and_digest() -> None:
    values = {name: getattr(HEADER, name) for name in vars(HEADER) if name != "signature"}
    made = UploadHeader.make(KEY, **values)
    signed = h(b"upload", b"\xc7" * 32, b"ann", b"\x11" * 8, b"\x4e" * 8, HEADER.digest)
    assert made.signature == KEY.sign(signed)
    made.verify(KEY.public)


@pytest.mark.parametrize("field", [name for name in vars(HEADER) if name != "member"])
def test_every_field_of_the_header_is_signed(field: str) -> None:
    values = {name: getattr(HEADER, name) for name in vars(HEADER) if name != "signature"}
    made = UploadHeader.make(KEY, **values)
    changed: dict[str, Any] = {field: bytes(len(getattr(made, field)))}
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[ann\]$"):
        replace(made, **changed).verify(KEY.public)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[eve\]$"):
        replace(made, member="eve").verify(KEY.public)


def test_known_receipt_digest() -> None:
    assert RECEIPT.digest.hex() == "91ae59050261b9bf1ca40e042c328641b64af4bec0bf8510b80bef9f229cac34"


def test_commitments_are_sixteen_bytes_of_the_hash() -> None:
    ctx, seed = b"\xc7" * 32, b"\x5d" * 32
    assert self_commitment(ctx, "ann", seed) == h(b"commit-self", ctx, b"ann", seed)[:16]
    assert edge_commitment(ctx, "ann", "bob", seed) == h(b"commit-edge", ctx, b"ann", b"bob", seed)[:16]
    share = b"\x5f" * 36
    assert (
        share_commitment(ctx, "ann", "bob", 258, share)
        == h(b"commit-share", ctx, b"ann", b"bob", b"\x02\x01\0\0", share)[:16]
    )
    assert self_commitment(ctx, "ann", seed).hex() == "c7af5bfb5581ea67af3063bde800f07a"


def test_what_a_commitment_is_of_changes_it() -> None:
    ctx, seed, share = b"\xc7" * 32, b"\x5d" * 32, b"\x5f" * 36
    commitments = {
        self_commitment(ctx, "ann", seed),
        self_commitment(bytes(32), "ann", seed),
        self_commitment(ctx, "bob", seed),
        self_commitment(ctx, "ann", bytes(32)),
        edge_commitment(ctx, "ann", "bob", seed),
        edge_commitment(ctx, "bob", "ann", seed),
        edge_commitment(ctx, "ann", "eve", seed),
        share_commitment(ctx, "ann", "bob", 0, share),
        share_commitment(ctx, "bob", "ann", 0, share),
        share_commitment(ctx, "ann", "bob", 1, share),
        share_commitment(ctx, "ann", "bob", 0, bytes(36)),
    }
    assert len(commitments) == 11


def test_a_field_longer_than_its_limit_is_refused_before_it_is_read() -> None:
    at = DELIVERIES_WIRE.index(b"\x01\0\0\0\xb0")
    with pytest.raises(PeerFault, match=r"^oversized: a field of 4294967295 bytes"):
        Deliveries.from_bytes(DELIVERIES_WIRE[:at] + b"\xff\xff\xff\xff" + DELIVERIES_WIRE[at + 4 :])


def test_a_dealer_that_stands_twice_is_refused() -> None:
    twice = DELIVERIES_WIRE[:34] + b"\x02\0\0\0" + DELIVERIES_WIRE[38:] * 2
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Deliveries.from_bytes(twice)
