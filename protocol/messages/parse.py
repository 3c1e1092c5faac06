"""Read a message whose kind is not known beforehand."""

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages.base import Message
from protocol.messages.cohort import Cards, KeyCard, Manifest
from protocol.messages.disclosure import Disclosure
from protocol.messages.erasure import Erased, Erasure, ErasureRequest, Lost
from protocol.messages.evictions import BadRun, Evictions
from protocol.messages.history import Chain
from protocol.messages.opening import Opening
from protocol.messages.outcome import Certificate, Freeze, Refusal, Reveal, RevealSummary, VoidRequest, Vote
from protocol.messages.roster import Roster
from protocol.messages.study import Study
from protocol.messages.upload import Deliveries, Receipt, Upload, UploadSummary
from protocol.tags import PROTOCOL_VERSION

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
    """The message that `data` holds, whole; PeerFault names what is wrong with it."""
    if len(data) < 2:
        raise PeerFault(Cause.TRUNCATED, f"{len(data)} bytes are shorter than a header")
    # The version first: another version may give the same kind to another message.
    if data[0] != PROTOCOL_VERSION:
        raise PeerFault(Cause.UNKNOWN_VERSION, f"version {data[0]}, this side speaks {PROTOCOL_VERSION}")
    form = MESSAGES.get(data[1])
    if form is None:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {data[1]} is no message of version {PROTOCOL_VERSION}")
    return form.from_bytes(data)
