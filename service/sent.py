"""What a coordinator is sent: other kinds are refused before they are read."""

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Erased, Lost, Message, Receipt, Refusal, Reveal, Upload, Vote, parse
from veilsum.protocol.tags import PROTOCOL_VERSION

ANSWERS = (Receipt, Vote, Refusal, Reveal, Erased)
"""What a member may send in answer to a request."""
_KINDS = frozenset(form.kind for form in (Upload, *ANSWERS, Lost))


def read(body: bytes) -> Message:
    """Parse a message to the coordinator.

    Raises:
        PeerFault: unknown-message for a kind that only a coordinator sends, which may be the size of a roster; and as `parse`.
    """
    if len(body) > 1 and body[0] == PROTOCOL_VERSION and body[1] not in _KINDS:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {body[1]} is nothing that a coordinator is sent")
    return parse(body)
