"""Every message of the protocol, its bytes, and the causes of refusing it."""

from protocol.causes import Cause
from protocol.messages.base import SHARE_BYTES, Kind, Message, Signed
from protocol.messages.cohort import KeyCard, Manifest
from protocol.messages.opening import EMPTY_CHAIN, Link, Opening, Terms, extend_chain
from protocol.messages.outcome import (
    NO_REASON,
    Certificate,
    Freeze,
    Refusal,
    Reveal,
    Survivor,
    VoidRequest,
    Vote,
    survivors_hash,
    void_hash,
)
from protocol.messages.parse import parse
from protocol.messages.roster import Entry, Roster, cohort_id
from protocol.messages.upload import (
    COMMITMENT_BYTES,
    Deliveries,
    Delivery,
    Receipt,
    Upload,
    UploadHeader,
    edge_commitment,
    self_commitment,
    share_commitment,
    share_commitments,
)

__all__ = [
    "COMMITMENT_BYTES",
    "EMPTY_CHAIN",
    "NO_REASON",
    "SHARE_BYTES",
    "Cause",
    "Certificate",
    "Deliveries",
    "Delivery",
    "Entry",
    "Freeze",
    "KeyCard",
    "Kind",
    "Link",
    "Manifest",
    "Message",
    "Opening",
    "Receipt",
    "Refusal",
    "Reveal",
    "Roster",
    "Signed",
    "Survivor",
    "Terms",
    "Upload",
    "UploadHeader",
    "VoidRequest",
    "Vote",
    "cohort_id",
    "edge_commitment",
    "extend_chain",
    "parse",
    "self_commitment",
    "share_commitment",
    "share_commitments",
    "survivors_hash",
    "void_hash",
]
