"""What a member remembers of the federation's attempts, from one cohort to the next (protocol §4.3)."""

from dataclasses import replace
from typing import Annotated

from protocol.attempt import Attempt, Closing, Finished
from protocol.causes import Cause
from protocol.codec import U64, Digest, Many, Name, Nested, Struct, UInt
from protocol.errors import PeerFault
from protocol.messages import EMPTY_CHAIN, Certificate, Link, Lost, Opening, Survivor, extend_chain
from protocol.messages.base import MAX_MEMBERS
from protocol.messages.opening import MAX_CLASSES, MAX_LINKS
from protocol.opening_rules import check_places


class Counted(Struct):
    """An indicator that this member has recounted (protocol §8.2).

    Attributes:
        context: the indicator's.
        holders: for each class, how many members hold it.
        survivors: S∖E, the members that were counted.
        evicted: the certified members that were not, because they proved false.
    """

    context: Digest
    holders: Annotated[tuple[int, ...], Many(UInt(4), MAX_CLASSES)]
    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]
    evicted: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]


class History(Struct):
    """The chain as far as this member knows it.

    Attributes:
        head: fold of the links seen; `length` counts them.
        settled: links of attempts whose end it has seen since: the chain must hold them as they are.
        unsettled: attempts whose end it has not seen: it opens no other before it has.
        certified: attempts whose certificate it has seen, and no link yet: an Erasure or Lost may still take its place.
        counted: indicators that it has recounted, oldest first.
        finished: certified exact attempts that it took part in, for runs that repeat one, oldest first.
    """

    head: Digest = EMPTY_CHAIN
    length: U64 = 0
    settled: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)] = ()
    unsettled: Annotated[tuple[Attempt, ...], Many(Nested(Attempt), MAX_LINKS)] = ()
    certified: Annotated[tuple[Attempt, ...], Many(Nested(Attempt), MAX_LINKS)] = ()
    counted: Annotated[tuple[Counted, ...], Many(Nested(Counted), MAX_LINKS)] = ()
    finished: Annotated[tuple[Finished, ...], Many(Nested(Finished), MAX_LINKS)] = ()

    def entered(self, attempt: Attempt) -> "History":
        """The same with an attempt that this member now takes part in: it opens no other before this one has ended."""
        return replace(self, unsettled=(*_without(self.unsettled, attempt), attempt))

    def count_of(self, indicator: bytes) -> Counted | None:
        """What this member counted in an indicator, by its context; None where it did not."""
        return next((each for each in self.counted if each.context == indicator), None)

    def with_count(self, counted: Counted) -> "History":
        """The same with one more indicator recounted."""
        others = tuple(each for each in self.counted if each.context != counted.context)
        return replace(self, counted=(*others, counted))

    def finished_of(self, context: bytes) -> Finished | None:
        """The certified attempt of a context; None where this member was in no such one."""
        return next((each for each in self.finished if each.context == context), None)

    def closed(self, attempt: Attempt, document: Closing, now_s: float) -> "History":
        """The same with the end of an attempt.

        Raises:
            PeerFault: the document does not close that attempt; wrong-phase for a Lost before the attempt's latest end;
                wrong-context for a certificate where an Erasure or Lost has taken its place.
        """
        attempt.check_closing(document)
        if isinstance(document, Lost) and now_s < attempt.terms.latest_end_s:
            raise PeerFault(
                Cause.WRONG_PHASE, "an attempt is lost after its latest end, not before", ["admin"]
            )
        link, certified = attempt.link(document), _without(self.certified, attempt)
        known = tuple(each for each in self.settled if each.context == attempt.context)
        if known not in {(), (link,)} and len(certified) == len(self.certified):
            raise PeerFault(
                Cause.WRONG_CONTEXT, "this member knows another end of the attempt", ["coordinator"]
            )
        others = tuple(each for each in self.settled if each not in known)
        finished = tuple(each for each in self.finished if each.context != attempt.context)
        if isinstance(document, Certificate) and not document.void:
            certified = (*certified, attempt)
            if attempt.question.noise is None:
                kept = Finished(attempt.context, attempt.study, attempt.terms, document.survivors)
                finished = (*finished, kept)
        return replace(
            self,
            settled=(*others, link),
            unsettled=_without(self.unsettled, attempt),
            certified=certified,
            finished=finished,
        )

    def settle(self, document: Closing, now_s: float) -> "History":
        """Close the attempt that this document is for; PeerFault as `closed`, wrong-context where there is none.

        The end that is known already changes nothing.
        """
        ending = (document.context, document.reason, document.survivors_hash)
        if any((link.context, link.reason, link.survivors) == ending for link in self.settled):
            return self
        return self.closed(_of(document.context, (*self.unsettled, *self.certified)), document, now_s)

    def left_open(self, context: bytes) -> Attempt:
        """The attempt of this context, whose end is not known; PeerFault(wrong-context) where there is none."""
        return _of(context, self.unsettled)

    def check(self, opening: Opening, context: bytes = b"") -> "History":
        """Check an opening's links against what is known, and take them over (protocol §4.3, clauses 4 and 5).

        Args:
            opening: with the chain as the coordinator tells it.
            context: the attempt that it opens, where this member takes part in it already.

        Raises:
            PeerFault: outcome-missing, or chain-broken.
        """
        if any(attempt.context != context for attempt in self.unsettled):
            raise PeerFault(
                Cause.OUTCOME_MISSING,
                f"show how {len(self.unsettled)} attempts ended that this member took part in",
                ["coordinator"],
            )
        links = opening.links
        if len(links) < self.length or extend_chain(EMPTY_CHAIN, links[: self.length]) != self.head:
            raise PeerFault(
                Cause.CHAIN_BROKEN, "the history does not begin with the rounds this member knows"
            )
        if unknown := {link.context for link in set(self.settled).difference(links)}:
            # What took the place of a certificate is fetched like any end; every other end stands.
            replaced = unknown <= {attempt.context for attempt in self.certified}
            raise PeerFault(
                Cause.OUTCOME_MISSING if replaced else Cause.CHAIN_BROKEN,
                "the history omits an attempt that this member knows, or ends it otherwise",
                ["coordinator"],
            )
        check_places(opening)
        head = extend_chain(self.head, links[self.length :])
        return replace(self, head=head, length=len(links), settled=(), certified=())


def _of(context: bytes, attempts: tuple[Attempt, ...]) -> Attempt:
    for attempt in attempts:
        if attempt.context == context:
            return attempt
    raise PeerFault(Cause.WRONG_CONTEXT, "this member waits for the end of no such attempt", ["coordinator"])


def _without(attempts: tuple[Attempt, ...], attempt: Attempt) -> tuple[Attempt, ...]:
    return tuple(each for each in attempts if each.context != attempt.context)
