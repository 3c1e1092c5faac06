"""A member's memory of the federation's attempts, across cohorts (wire: Openings)."""

from dataclasses import replace
from typing import Annotated

from veilsum.protocol.attempt import Attempt, Closing, Finished
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U64, Digest, Many, Struct, UInt
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    EMPTY_CHAIN,
    NO_REASON,
    Certificate,
    Link,
    Lost,
    Names,
    Survivors,
    extend_chain,
)
from veilsum.protocol.messages.opening import MAX_CLASSES, MAX_LINKS
from veilsum.protocol.opening_rules import check_places, check_unspent
from veilsum.protocol.periods import PeriodKind


class Counted(Struct):
    """A step `count` or `rows` that this member has recounted (COUNT-3 to COUNT-6).

    Attributes:
        context: of the attempt.
        count: context of the `count` that a step `rows` rests on; `NO_CONTEXT` for a `count`.
        sums: members that hold each class, (C,); of `rows`, members that reach each level, (8,).
        survivors: S∖E, the counted members.
        evicted: certified members left out of the count because they proved false.
    """

    context: Digest
    count: Digest
    sums: Annotated[tuple[int, ...], Many(UInt(4), MAX_CLASSES)]
    survivors: Survivors
    evicted: Names

    @property
    def names(self) -> frozenset[str]:
        """The counted members."""
        return frozenset(each.member for each in self.survivors)

    def to_outcome(self, survivors_min: int) -> CountOutcome:
        """Return what it found, in a cohort with this `n_min`."""
        return CountOutcome(self.sums, self.names, self.evicted, survivors_min)


class History(Struct):
    """The part of the chain that this member knows.

    Attributes:
        head: chain head over the links seen so far; `length` counts them.
        settled: links of attempts whose end it has seen since then; the chain contains them unchanged, or lacks one that certified no set.
        unsettled: attempts without a known end; the member opens no other attempt meanwhile.
        certified: attempts with a seen certificate but no link yet; an Erasure or Lost may still replace it.
        counted: counts that it has recounted, oldest first.
        finished: certified exact attempts over data that it took part in, for repeating runs, oldest first.
    """

    head: Digest = EMPTY_CHAIN
    length: U64 = 0
    settled: Annotated[tuple[Link, ...], Many(Link, MAX_LINKS)] = ()
    unsettled: Annotated[tuple[Attempt, ...], Many(Attempt, MAX_LINKS)] = ()
    certified: Annotated[tuple[Attempt, ...], Many(Attempt, MAX_LINKS)] = ()
    counted: Annotated[tuple[Counted, ...], Many(Counted, MAX_LINKS)] = ()
    finished: Annotated[tuple[Finished, ...], Many(Finished, MAX_LINKS)] = ()

    def enter_attempt(self, attempt: Attempt) -> "History":
        """Add an attempt that this member joins; it opens no other until this one has ended."""
        return replace(self, unsettled=(*_drop_attempt(self.unsettled, attempt), attempt))

    def count_of(self, count: bytes) -> Counted | None:
        """Look up a recounted count by its context."""
        return next((each for each in self.counted if each.context == count), None)

    def with_count(self, counted: Counted) -> "History":
        """Add a recounted count."""
        others = tuple(each for each in self.counted if each.context != counted.context)
        return replace(self, counted=(*others, counted))

    def finished_of(self, context: bytes) -> Finished | None:
        """Look up a finished attempt by its context."""
        return next((each for each in self.finished if each.context == context), None)

    def add_end(self, attempt: Attempt, document: Closing, now_s: float) -> "History":
        """Add the end of an attempt.

        Raises:
            PeerFault: the document does not close that attempt; wrong-phase for a Lost before the attempt's latest end;
                wrong-context for a certificate that an Erasure or Lost has replaced.
        """
        attempt.check_closing(document)
        if isinstance(document, Lost) and now_s < attempt.terms.latest_end_s:
            raise PeerFault(
                Cause.WRONG_PHASE, "an attempt is lost after its latest end, not before", ["admin"]
            )
        link, certified = attempt.make_link(document), _drop_attempt(self.certified, attempt)
        known = tuple(each for each in self.settled if each.context == attempt.context)
        if known not in {(), (link,)} and len(certified) == len(self.certified):
            raise PeerFault(
                Cause.WRONG_CONTEXT, "this member knows another end of the attempt", ["coordinator"]
            )
        others = tuple(each for each in self.settled if each not in known)
        finished = tuple(each for each in self.finished if each.context != attempt.context)
        if isinstance(document, Certificate) and not document.is_void:
            certified = (*certified, attempt)
            if attempt.question.noise is None and attempt.spec.kind is PeriodKind.DATA:
                kept = Finished(attempt.context, attempt.study, attempt.terms, document.survivors)
                finished = (*finished, kept)
        return replace(
            self,
            settled=(*others, link),
            unsettled=_drop_attempt(self.unsettled, attempt),
            certified=certified,
            finished=finished,
        )

    def close_attempt(self, document: Closing, now_s: float) -> "History":
        """Close the document's attempt; an end that is already known changes nothing.

        Raises PeerFault as `add_end` does, and wrong-context for an unknown attempt.
        """
        ending = (document.context, document.reason, document.survivors_hash)
        if any((link.context, link.reason, link.survivors) == ending for link in self.settled):
            return self
        return self.add_end(
            _attempt_of(document.context, (*self.unsettled, *self.certified)), document, now_s
        )

    def left_open(self, context: bytes) -> Attempt:
        """Look up an unsettled attempt. Raises PeerFault(wrong-context) if absent."""
        return _attempt_of(context, self.unsettled)

    def adopt_links(self, attempt: Attempt, *, joined: bool = False) -> "History":
        """Check an opening's links against this history, and adopt them (OPEN-8 to OPEN-14).

        Args:
            attempt: with the opening that shows the coordinator's chain.
            joined: whether this member already takes part in it.

        Raises:
            PeerFault: outcome-missing, or chain-broken; already-summed if the links lack a lost attempt at the same step.
        """
        others = _drop_attempt(self.unsettled, attempt) if joined else self.unsettled
        if others:
            raise PeerFault(
                Cause.OUTCOME_MISSING,
                f"show how {len(others)} attempts ended that this member took part in",
                ["coordinator"],
            )
        opening, links = attempt.opening, attempt.opening.links
        nothing_new = len(links) == self.length
        known = opening.chain_head if nothing_new else extend_chain(EMPTY_CHAIN, links[: self.length])
        if known != self.head:
            raise PeerFault(
                Cause.CHAIN_BROKEN, "the history does not begin with the rounds this member knows"
            )
        # A coordinator may never have known an attempt, and nothing rests on one without a certified set.
        named = {link.context for link in links}
        left_out = [link for link in self.settled if link.reason != NO_REASON and link.context not in named]
        if unknown := {link.context for link in set(self.settled).difference(links, left_out)}:
            # A document that replaced a certificate is fetched like any end; every other end is final.
            replaced = unknown <= {each.context for each in self.certified}
            raise PeerFault(
                Cause.OUTCOME_MISSING if replaced else Cause.CHAIN_BROKEN,
                "the history omits an attempt that this member knows, or ends it otherwise",
                ["coordinator"],
            )
        check_places(opening)
        check_unspent(attempt, left_out)
        return replace(
            self, head=opening.chain_head, length=len(links), settled=tuple(left_out), certified=()
        )


def _attempt_of(context: bytes, attempts: tuple[Attempt, ...]) -> Attempt:
    for attempt in attempts:
        if attempt.context == context:
            return attempt
    raise PeerFault(Cause.WRONG_CONTEXT, "this member has no such open attempt", ["coordinator"])


def _drop_attempt(attempts: tuple[Attempt, ...], attempt: Attempt) -> tuple[Attempt, ...]:
    return tuple(each for each in attempts if each.context != attempt.context)
