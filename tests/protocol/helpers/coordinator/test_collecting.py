"""Uploads, chunks, and when collecting ends."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import Misuse
from protocol.helpers.coordinator import Checking, Collecting, Voiding
from protocol.helpers.messages import HelperOpening
from protocol.helpers.simulator import HelperFederation
from tests.protocol.helpers.coordinator.answers import cause


def test_an_upload_is_signed_whole_and_its_client_s_only_one(
    federation: HelperFederation, collecting: Collecting, resign: Callable[..., Any]
) -> None:
    upload = federation._speak(0)
    collecting.check_upload(upload)
    collecting.check_upload(upload, upload)
    for changed, expected in (
        (resign(federation, upload, context=bytes(32)), Cause.WRONG_CONTEXT),
        (replace(upload, header=replace(upload.header, records=b"\x01" * 8)), Cause.BAD_SIGNATURE),
        (resign(federation, upload, chunk_digests=upload.chunk_digests[:1]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, commitments=upload.commitments[:3]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, boxes=upload.boxes[:3]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, chunk_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, seed_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, box_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
    ):
        assert cause(collecting.check_upload, changed) == expected
    other = resign(federation, upload, records=b"\x01" * 8)
    collecting.check_upload(other)
    assert cause(collecting.check_upload, other, upload) == Cause.UPLOAD_CONFLICT


def test_a_chunk_is_one_that_was_announced(federation: HelperFederation, collecting: Collecting) -> None:
    upload = federation._speak(0)
    packed = federation.spool["client-0", 1]
    digest = hashlib.sha256(packed).digest()
    collecting.check_chunk(upload, 1, digest, packed)
    assert cause(collecting.check_chunk, upload, 0, digest, packed) == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 1, digest, packed + b"\0") == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 1, bytes(32), packed) == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 2, digest, packed) == Cause.CHUNK_UNKNOWN
    assert cause(collecting.check_chunk, upload, -1, digest, packed) == Cause.CHUNK_UNKNOWN


def test_a_chunk_has_no_bit_after_its_last_element(
    federation: HelperFederation, resign: Callable[..., Any]
) -> None:
    federation.begin(federation.terms(9, ring_bits=33, chunk_elements=8))
    collecting, upload = federation.phase, federation._speak(0)
    assert isinstance(collecting, Collecting)
    packed = federation.spool["client-0", 1]
    padded = packed[:-1] + bytes([packed[-1] | 0x80])
    digest = hashlib.sha256(padded).digest()
    cheat = resign(federation, upload, chunk_digests=(upload.chunk_digests[0], digest))
    assert cause(collecting.check_chunk, cheat, 1, digest, padded) == Cause.CHUNK_MISMATCH
    collecting.check_chunk(upload, 1, hashlib.sha256(packed).digest(), packed)


def test_collecting_ends_with_enough_uploads(federation: HelperFederation, collecting: Collecting) -> None:
    uploads = [federation._speak(index) for index in range(5)]
    phase = collecting.close(reversed(uploads), federation.now_s)
    assert isinstance(phase, Checking)
    assert [upload.member for upload in phase.uploads] == list(federation.ids[:5])
    few = collecting.close(uploads[:4], federation.now_s)
    assert isinstance(few, Voiding)
    assert few.fault.cause == Cause.SURVIVORS_TOO_FEW


def test_collecting_shows_the_opening_and_takes_no_messages(
    federation: HelperFederation, collecting: Collecting
) -> None:
    assert isinstance(collecting.request_for("helper-0"), HelperOpening)
    assert collecting.request_for("client-0") is None
    assert collecting.waiting_for() == ()
    assert cause(collecting.receive, federation.attempt.opening, 0.0) == Cause.WRONG_PHASE
    with pytest.raises(Misuse, match="no deadline"):
        collecting.expire(0.0)
    phase = collecting.cancel(0.0, "no longer wanted")
    assert isinstance(phase, Voiding)
    assert str(phase.fault) == "cancelled: no longer wanted [operator]"
    assert phase.cancel(0.0) is phase
    assert repr(phase) == f"<Voiding of {federation.attempt.context.hex()[:16]}>"
