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


SHOWN_BASE_BYTES = 1 << 18
SHOWN_CLIENT_BYTES = 1 << 10
"""Bounds, with room to spare, on an opening and on what any message holds of one client: a delivery has at most 617 bytes."""


def parse_shown(data: bytes | memoryview, clients: int) -> Message:
    """As `parse`, of what the coordinator shows under a roster with so many clients.

    Reading takes time by the byte, so what no such roster can fill is refused unread (helpers H2).

    Raises:
        PeerFault: oversized, naming the coordinator; else as `parse`.
    """
    most = SHOWN_BASE_BYTES + SHOWN_CLIENT_BYTES * clients
    if len(data) > most:
        raise PeerFault(
            Cause.OVERSIZED,
            f"a message of {len(data)} bytes where {clients} clients fill at most {most}",
            ["coordinator"],
        )
    return parse(data)
