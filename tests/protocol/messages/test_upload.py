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
    UploadSummary,
    deliveries_hash,
    edge_commitment,
    self_commitment,
    share_commitment,
    share_commitments,
)
from tests.protocol.messages.wire import CONTEXT, HEADER, HEADER_HEX, h

KEY = SigningKey(b"\x0a" * 32)

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
            "03",  # version
            "05",  # kind: upload
            HEADER_HEX,  # header
            "01000000" + "cd" * 32,  # chunk_digests: one
            "02000000" + "51" * 16 + "52" * 16,  # secret_commitments: two
            "01000000" + "20000000" + "61" * 32,  # share_rows: one of 32 bytes
            "02000000" + "00000000" + "02000000" + "b0b1",  # boxes: none, and one of 2 bytes
        )
    )
)

SUMMARY = UploadSummary(header=HEADER, secret_commitments=(b"\x51" * 16, b"\x52" * 16), path=(b"\x70" * 32,))
SUMMARY_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "15",  # kind: upload summary
            HEADER_HEX,  # header
            "02000000" + "51" * 16 + "52" * 16,  # secret_commitments: two
            "01000000" + "70" * 32,  # path: one
        )
    )
)

DELIVERIES = Deliveries(
    context=CONTEXT,
    deliveries=(
        Delivery(
            header=HEADER, box=b"\xb0", box_path=(b"\x70" * 32,), row=b"\x61\x62", row_path=(b"\x71" * 32,)
        ),
    ),
)
DELIVERIES_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
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
    context=CONTEXT,
    member="bob",
    uploads=b"\xd9" * 32,
    dealers=("ann",),
    complaints=("eve",),
    signature=b"\x5e" * 64,
)
RECEIPT_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "07",  # kind: receipt
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "d9" * 32,  # uploads
            "01000000" + "03616e6e",  # dealers: "ann"
            "01000000" + "03657665",  # complaints: "eve"
            "5e" * 64,  # signature
        )
    )
)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (UPLOAD, UPLOAD_WIRE),
        (SUMMARY, SUMMARY_WIRE),
        (DELIVERIES, DELIVERIES_WIRE),
        (RECEIPT, RECEIPT_WIRE),
    ],
    ids=["upload", "upload-summary", "deliveries", "receipt"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_the_upload_digest_is_the_hash_of_its_preimage() -> None:
    preimage = (CONTEXT, b"ann", b"\x11" * 8, b"\x4e" * 8, b"\x5a" * 32)
    roots = (b"\x01" * 32, b"\x02" * 32, b"\x03" * 32)
    assert HEADER.digest == h(b"upload-digest", *preimage, *roots)
    assert HEADER.digest.hex() == "8f31f05bc8504d0b782720ae65ab3d9f535f288ab009e93bbebc7a8205687ba7"


def test_a_receipt_binds_what_was_delivered() -> None:
    digests = (HEADER.digest, b"\x02" * 32)
    assert deliveries_hash(CONTEXT, digests) == h(b"deliveries", CONTEXT, *digests)
    assert deliveries_hash(CONTEXT, ()).hex() == h(b"deliveries", CONTEXT).hex()


def test_the_member_signs_lineage_records_and_digest() -> None:
    values = {name: getattr(HEADER, name) for name, _ in HEADER.codecs() if name != "signature"}
    made = UploadHeader.make(KEY, **values)
    signed = h(b"upload", CONTEXT, b"ann", b"\x11" * 8, b"\x4e" * 8, HEADER.digest)
    assert made.signature == KEY.sign(signed)
    made.verify(KEY.public)


@pytest.mark.parametrize("field", [name for name, _ in HEADER.codecs() if name != "member"])
def test_every_field_of_the_header_is_signed(field: str) -> None:
    values = {name: getattr(HEADER, name) for name, _ in HEADER.codecs() if name != "signature"}
    made = UploadHeader.make(KEY, **values)
    changed: dict[str, Any] = {field: bytes(len(getattr(made, field)))}
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[ann\]$"):
        replace(made, **changed).verify(KEY.public)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[eve\]$"):
        replace(made, member="eve").verify(KEY.public)


def test_known_receipt_digest() -> None:
    assert RECEIPT.digest.hex() == "4ea3b1a93bcd98f34106ca58bdc79fac5282c7d36b409aa098678ee552e8493a"


def test_commitments_are_sixteen_bytes_of_the_hash() -> None:
    ctx, seed = CONTEXT, b"\x5d" * 32
    assert self_commitment(ctx, "ann", seed) == h(b"commit-self", ctx, b"ann", seed)[:16]
    assert edge_commitment(ctx, "ann", "bob", seed) == h(b"commit-edge", ctx, b"ann", b"bob", seed)[:16]
    share = b"\x5f" * 36
    assert (
        share_commitment(ctx, "ann", "bob", 258, share)
        == h(b"commit-share", ctx, b"ann", b"bob", b"\x02\x01\0\0", share)[:16]
    )
    assert self_commitment(ctx, "ann", seed).hex() == "4cda88383ababeb1f3abbda14512fbe0"


def test_what_a_commitment_is_of_changes_it() -> None:
    ctx, seed, share = CONTEXT, b"\x5d" * 32, b"\x5f" * 36
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


def test_shares_are_committed_to_together_as_one_by_one() -> None:
    shares = [bytes([fill]) * 36 for fill in (0x5F, 0x60, 0x61)]
    singly = [
        share_commitment(CONTEXT, "ann", "bob", index, share)
        for index, share in zip((0, 258, 7), shares, strict=True)
    ]
    together = share_commitments(CONTEXT, "ann", "bob", (0, 258, 7), b"".join(shares))
    assert together == b"".join(singly)
    for indices in ((0, 1), (0, 1, 2, 3)):
        with pytest.raises(ValueError, match="zip"):
            share_commitments(CONTEXT, "ann", "bob", indices, b"".join(shares))


def test_a_field_longer_than_its_limit_is_refused_before_it_is_read() -> None:
    at = DELIVERIES_WIRE.index(b"\x01\0\0\0\xb0")
    with pytest.raises(PeerFault, match=r"^oversized: a field of 4294967295 bytes"):
        Deliveries.from_bytes(DELIVERIES_WIRE[:at] + b"\xff\xff\xff\xff" + DELIVERIES_WIRE[at + 4 :])


def test_a_dealer_that_stands_twice_is_refused() -> None:
    twice = DELIVERIES_WIRE[:34] + b"\x02\0\0\0" + DELIVERIES_WIRE[38:] * 2
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Deliveries.from_bytes(twice)
