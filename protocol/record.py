"""The coordinator's signature over a result record (protocol §4.8)."""

from typing import TypeVar

import rfc8785

from protocol.identity import SigningKey, verify_signature
from protocol.published import CombinedRecord, ResultRecord
from protocol.tags import Tag, hash_fields

Record = TypeVar("Record", ResultRecord, CombinedRecord)


def record_body(record: ResultRecord | CombinedRecord) -> bytes:
    """The record without its signature as canonical JSON (RFC 8785)."""
    return rfc8785.dumps(record.model_dump(mode="json", exclude={"signature"}))


def record_digest(record: ResultRecord | CombinedRecord) -> bytes:
    """H(result tag, body), which the coordinator signs."""
    return hash_fields(Tag.RESULT, record_body(record))


def sign_record(record: Record, key: SigningKey) -> Record:
    """The same record with the coordinator's signature."""
    return record.model_copy(update={"signature": key.sign(record_digest(record)).hex()})


def verify_record(record: ResultRecord | CombinedRecord, coordinator: bytes) -> None:
    """Raise PeerFault(bad-signature) unless the roster's coordinator signed this record."""
    verify_signature(coordinator, bytes.fromhex(record.signature), record_digest(record), "coordinator")
