"""Read a message of this mode whose kind is not known beforehand."""

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.messages.opening import HelperCard, HelperOpening
from protocol.helpers.messages.outcome import (
    HelperCertificate,
    HelperCounted,
    HelperFreeze,
    HelperLost,
    HelperRefusal,
    HelperSums,
    HelperVoidRequest,
    HelperVote,
)
from protocol.helpers.messages.upload import HelperDeliveries, HelperReceipt, HelperUpload
from protocol.messages.base import Message
from protocol.tags import PROTOCOL_VERSION

HELPER_MESSAGES: dict[int, type[Message]] = {
    message.kind: message
    for message in (
        HelperCard,
        HelperOpening,
        HelperUpload,
        HelperDeliveries,
        HelperReceipt,
        HelperFreeze,
        HelperVoidRequest,
        HelperVote,
        HelperRefusal,
        HelperCertificate,
        HelperSums,
        HelperLost,
        HelperCounted,
    )
}


def parse(data: bytes | memoryview) -> Message:
    """The message that `data` holds, whole; PeerFault names what is wrong with it."""
    if len(data) < 2:
        raise PeerFault(Cause.TRUNCATED, f"{len(data)} bytes are shorter than a header")
    # The version first: another version may give the same kind to another message.
    if data[0] != PROTOCOL_VERSION:
        raise PeerFault(Cause.UNKNOWN_VERSION, f"version {data[0]}, this side speaks {PROTOCOL_VERSION}")
    form = HELPER_MESSAGES.get(data[1])
    if form is None:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {data[1]} is no message of the helpers' mode")
    return form.from_bytes(data)
