"""The terms of a step, the chain of earlier attempts, and the opening of an attempt (protocol §4.3)."""

from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U8, U64, Digest, Id, Many, Name, Nested, Shared, Signature, Struct, UInt
from protocol.errors import PeerFault
from protocol.messages.base import MAX_MEMBERS, Kind, Signed
from protocol.tags import Tag, hash_fields

MAX_ATTEMPTS = 8
MAX_LINKS = 1 << 16
MAX_CLASSES = 1 << 16

NO_CONTEXT = bytes(32)
"""Stands for no attempt, no material and no survivors."""
NO_REASON = "none"
LOST_REASON = "lost"
ERASED_REASON = "erased"
SPENDING = frozenset({NO_REASON, LOST_REASON})
"""Reasons of a link whose attempt spends its records."""
EMPTY_CHAIN = bytes(32)


class Terms(Struct):
    """What differs between the openings of one run; everything else that is summed stands in the study.

    Attributes:
        step: of the study's steps.
        indicator: context of the indicator whose counts decide what is withheld; `NO_CONTEXT` for none.
        withheld: classes left out of the sum.
        evicted: members that the indicator certified and then proved false: it did not count them.
        material: SHA-256 of what the step needs of earlier ones; `NO_CONTEXT` for none.
        latest_end_s: Unix time in seconds after which every key of the attempt is erased.
    """

    step: Id
    indicator: Digest
    withheld: Annotated[tuple[int, ...], Many(UInt(4), MAX_CLASSES, ascending=True)]
    evicted: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    material: Digest
    latest_end_s: U64

    def validate(self) -> None:
        """Refuse withheld classes or evicted members without an indicator."""
        if self.indicator == NO_CONTEXT and (self.withheld or self.evicted):
            raise PeerFault(Cause.TERMS_REFUSED, "classes withheld or members evicted without an indicator")

    @property
    def hash(self) -> bytes:
        """Names the terms in the context."""
        return hash_fields(Tag.TERMS, self.encode_fields())


class Link(Shared):
    """An earlier attempt of the federation and how it ended.

    Attributes:
        question: digest of its study's question.
        repeats: its cohort's.
        reason: "none" for a certified set, the reason of a VOID, "erased" or "lost".
        survivors: `survivors_hash` of the certified set; `NO_CONTEXT` without one.
    """

    cohort: Digest
    sequence: U64
    attempt: U8
    question: Digest
    period: Id
    step: Id
    repeats: Digest
    context: Digest
    reason: Id
    survivors: Digest

    def validate(self) -> None:
        """Refuse a ninth attempt, and survivors that do not go with the reason."""
        _check_attempt(self.attempt)
        if (self.survivors != NO_CONTEXT) != (self.reason == NO_REASON):
            raise PeerFault(Cause.MALFORMED, f"survivors do not go with the reason {self.reason}")

    @property
    def spends(self) -> bool:
        """Whether the attempt spent the records of its members (protocol §4.9)."""
        return self.reason in SPENDING


class Opening(Signed):
    """The coordinator opens an attempt; every member derives the context from what it says.

    Attributes:
        links: every ended attempt of the federation, oldest first.
    """

    kind: ClassVar[int] = Kind.OPENING
    tag: ClassVar[Tag] = Tag.OPENING

    cohort: Digest
    sequence: U64
    attempt: U8
    links: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)]
    terms: Annotated[Terms, Nested(Terms)]
    signature: Signature

    def validate(self) -> None:
        """Refuse a ninth attempt."""
        _check_attempt(self.attempt)

    @property
    def place(self) -> tuple[int, int]:
        """Sequence and attempt: where in the cohort's life this stands."""
        return self.sequence, self.attempt


def _check_attempt(attempt: int) -> None:
    if attempt >= MAX_ATTEMPTS:
        raise PeerFault(Cause.WRONG_SEQUENCE, f"attempt {attempt}: a sequence has at most {MAX_ATTEMPTS}")


def extend_chain(head: bytes, links: tuple[Link, ...]) -> bytes:
    """Fold links onto a chain head: head' = H(link tag, head, link)."""
    for link in links:
        head = hash_fields(Tag.LINK, head, link.encode_fields())
    return head
