"""Read a message of this mode whose kind is not known beforehand."""

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
from protocol.messages.parse import parse_one

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
    return parse_one(data, HELPER_MESSAGES, "the helpers' mode")
