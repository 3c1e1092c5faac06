"""How an attempt ends after its latest end: by erasure, or by the admin's Lost (protocol §4.9)."""

from typing import Annotated, ClassVar

from protocol.codec import Digest, Id, Many, Nested, Signature
from protocol.messages.base import MAX_DECRYPTORS, Kind, Message, Signed
from protocol.messages.opening import ERASED_REASON, LOST_REASON, NO_CONTEXT
from protocol.tags import Tag

NOTHING_REVEALED = bytes(32)
"""Stands in an Erased for the outcome of a decryptor that never sent a Reveal."""


class ErasureRequest(Message):
    """To every decryptor, after the latest end: say that the attempt's shares and keys are erased."""

    kind: ClassVar[int] = Kind.ERASURE_REQUEST

    context: Digest


class Erased(Signed):
    """From a decryptor: its shares and keys of this attempt are erased, and it reveals nothing in this context any more.

    Attributes:
        revealed: the outcome that it sent a Reveal for; zero if it sent none.
    """

    kind: ClassVar[int] = Kind.ERASED
    tag: ClassVar[Tag] = Tag.ERASED

    context: Digest
    member: Id
    revealed: Digest
    signature: Signature


class Erasure(Message):
    """Reports of enough decryptors that revealed nothing: the attempt is VOID, for the reason `erased`."""

    kind: ClassVar[int] = Kind.ERASURE

    context: Digest
    reports: Annotated[tuple[Erased, ...], Many(Nested(Erased), MAX_DECRYPTORS, ascending=True)]

    reason: ClassVar[str] = ERASED_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT


class Lost(Signed):
    """The admin closes an attempt that too few decryptors report on."""

    kind: ClassVar[int] = Kind.LOST
    tag: ClassVar[Tag] = Tag.LOST

    context: Digest
    signature: Signature

    reason: ClassVar[str] = LOST_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT
