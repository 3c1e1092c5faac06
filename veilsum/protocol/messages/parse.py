"""Parse messages of unknown kind."""

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages.base import Message
from veilsum.protocol.messages.cohort import Cards, KeyCard, Manifest
from veilsum.protocol.messages.evidence import BadRun, Disclosure, Evictions
from veilsum.protocol.messages.opening import Chain, Opening
from veilsum.protocol.messages.outcome import (
    Certificate,
    Erased,
    Erasure,
    ErasureRequest,
    Freeze,
    Lost,
    Refusal,
    Reveal,
    RevealSummary,
    VoidRequest,
    Vote,
)
from veilsum.protocol.messages.roster import Roster, Study
from veilsum.protocol.messages.upload import Deliveries, Receipt, Upload, UploadSummary
from veilsum.protocol.tags import PROTOCOL_VERSION

MESSAGES: dict[int, type[Message]] = {
    message.kind: message
    for message in (
        Roster,
        KeyCard,
        Manifest,
        Opening,
        Upload,
        Deliveries,
        Receipt,
        Freeze,
        VoidRequest,
        Vote,
        Refusal,
        Certificate,
        Reveal,
        Cards,
        Evictions,
        ErasureRequest,
        Erased,
        Erasure,
        Disclosure,
        UploadSummary,
        RevealSummary,
        Chain,
        BadRun,
        Study,
        Lost,
    )
}


def parse(data: bytes | memoryview) -> Message:
    """Parse `data` as exactly one message; raises PeerFault."""
    if len(data) < 2:
        raise PeerFault(Cause.TRUNCATED, f"{len(data)} bytes are shorter than a header")
    # The version first: kinds may have other meanings in other versions.
    if data[0] != PROTOCOL_VERSION:
        raise PeerFault(Cause.UNKNOWN_VERSION, f"version {data[0]}, this side speaks {PROTOCOL_VERSION}")
    form = MESSAGES.get(data[1])
    if form is None:
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"protocol version {PROTOCOL_VERSION} has no message of kind {data[1]}"
        )
    return form.from_bytes(data)
