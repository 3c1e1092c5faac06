"""The terms of a step, the chain of earlier attempts, and the opening of an attempt (wire: Openings)."""

from functools import cached_property
from typing import Annotated

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U8, U64, Digest, Id, Key, Many, Shared, Signature, Struct, UInt
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages.base import Message, Names, Signed
from veilsum.protocol.tags import Tag, hash_fields

MAX_ATTEMPTS = 8
MAX_LINKS = 1 << 16
MAX_CLASSES = 1 << 16

NO_CONTEXT = bytes(32)
"""Placeholder for no attempt, no material or no survivors."""
NO_REASON = "none"
LOST_REASON = "lost"
ERASED_REASON = "erased"
SPENDING_REASONS = frozenset({NO_REASON, LOST_REASON})
"""Link reasons under which an attempt spends its records."""
EMPTY_CHAIN = bytes(32)


class Terms(Struct):
    """The parameters of a sum that differ between openings of one run; the study fixes the rest.

    Attributes:
        step: one of the study's steps.
        count: context of the step `count` whose sums decide the withheld classes; `NO_CONTEXT` for none.
        rows: context of the step `rows`, which shows that enough rows stand behind the other classes; `NO_CONTEXT` for none.
        withheld: classes left out of the sum.
        evicted: members that these two certified but did not count, because they proved false.
        material: SHA-256 of the step's input from earlier steps; `NO_CONTEXT` for none.
        latest_end_s: Unix time in seconds after which every key of the attempt is erased.
    """

    step: Id
    count: Digest
    rows: Digest
    withheld: Annotated[tuple[int, ...], Many(UInt(4), MAX_CLASSES, ascending=True)]
    evicted: Names
    material: Digest
    latest_end_s: U64

    def check_fields(self) -> None:
        """Refuse rows, withheld classes or evicted members without a count."""
        if self.count == NO_CONTEXT and (self.rows != NO_CONTEXT or self.withheld or self.evicted):
            raise PeerFault(
                Cause.TERMS_REFUSED, "rows counted, classes withheld or members evicted without a count"
            )

    @property
    def counts(self) -> tuple[bytes, ...]:
        """The contexts of the counts that the step rests on, oldest first."""
        return tuple(context for context in (self.count, self.rows) if context != NO_CONTEXT)

    @property
    def hash(self) -> bytes:
        """Hash of the terms, part of the context."""
        return hash_fields(Tag.TERMS, self.encode())


class Link(Shared):
    """An earlier attempt of the federation and how it ended.

    Attributes:
        question: digest of the study's question.
        repeats: context of the attempt that its cohort repeats; `NO_CONTEXT` for fresh records.
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

    def check_fields(self) -> None:
        """Refuse an attempt number of 8 or more, and survivors that contradict the reason."""
        _check_attempt(self.attempt)
        if (self.survivors != NO_CONTEXT) != (self.reason == NO_REASON):
            raise PeerFault(Cause.MALFORMED, f"survivors do not go with the reason {self.reason}")

    @property
    def spends_records(self) -> bool:
        """Whether the attempt spent the records of its members (wire: Ends)."""
        return self.reason in SPENDING_REASONS


class Opening(Signed, kind=4, tag=Tag.OPENING):
    """The coordinator's opening of an attempt, from which members derive the context.

    It links every ended attempt of the federation, oldest first.
    """

    cohort: Digest
    sequence: U64
    attempt: U8
    links: Annotated[tuple[Link, ...], Many(Link, MAX_LINKS)]
    terms: Terms
    signature: Signature

    def check_fields(self) -> None:
        """Refuse an attempt number of 8 or more."""
        _check_attempt(self.attempt)

    @property
    def sequence_and_attempt(self) -> tuple[int, int]:
        return self.sequence, self.attempt

    @cached_property
    def chain_head(self) -> bytes:
        return extend_chain(EMPTY_CHAIN, self.links)


def _check_attempt(attempt: int) -> None:
    if attempt >= MAX_ATTEMPTS:
        raise PeerFault(Cause.WRONG_SEQUENCE, f"attempt {attempt}: a sequence has at most {MAX_ATTEMPTS}")


def extend_chain(head: bytes, links: tuple[Link, ...]) -> bytes:
    """Fold links onto a chain head: head' = H(link tag, head, link)."""
    for link in links:
        head = hash_fields(Tag.LINK, head, link.encode())
    return head


class Chain(Message, kind=23):
    """Every ended attempt of a federation, oldest first."""

    federation: Key
    links: Annotated[tuple[Link, ...], Many(Link, MAX_LINKS)]
