"""What a member remembers of the federation's rounds, from one cohort to the next (protocol §4.3, §8)."""

from dataclasses import replace
from typing import Annotated

from protocol.attempt import Attempt, Closing
from protocol.causes import Cause
from protocol.codec import U64, Digest, Fixed, Many, Nested, Struct, UInt
from protocol.errors import PeerFault
from protocol.messages import (
    EMPTY_CHAIN,
    NO_REASON,
    Link,
    Lost,
    Opening,
    Survivor,
    extend_chain,
)
from protocol.messages.base import MAX_MEMBERS
from protocol.messages.opening import MAX_CLASSES, MAX_LINKS
from protocol.opening_rules import check_places


class Counted(Struct):
    """An indicator round that this member has recounted (protocol §9).

    Attributes:
        context: the round's.
        holders: for each class, how many survivors hold it.
        survivors: those.
    """

    context: Digest
    holders: Annotated[tuple[int, ...], Many(UInt(4), MAX_CLASSES)]
    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]


class Entered(Struct):
    """An attempt that this member has taken part in, or whose keys it has erased.

    Attributes:
        attempt: what its closing is checked against; there is no secret in it.
        lineages: lin_u of the upload, if there was one.
    """

    attempt: Annotated[Attempt, Nested(Attempt)]
    lineages: Annotated[tuple[bytes, ...], Many(Fixed(8), 1)]

    @property
    def context(self) -> bytes:
        """The attempt's."""
        return self.attempt.context


class History(Struct):
    """The chain as far as this member knows it.

    Attributes:
        head: fold of the links seen; `length` counts them.
        settled: links of attempts whose end it has seen since: the chain must hold them as they are.
        unsettled: attempts whose end it has not seen: it opens no other before it has.
        certified: attempts whose certificate it has seen, and no link yet: an Erasure or Lost may still take its place.
        spent: lineages that were uploaded to a lost attempt.
        counted: the last indicator round.
    """

    head: Digest = EMPTY_CHAIN
    length: U64 = 0
    settled: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)] = ()
    unsettled: Annotated[tuple[Entered, ...], Many(Nested(Entered), MAX_LINKS)] = ()
    certified: Annotated[tuple[Entered, ...], Many(Nested(Entered), MAX_LINKS)] = ()
    spent: Annotated[tuple[bytes, ...], Many(Fixed(8), MAX_LINKS)] = ()
    counted: Annotated[tuple[Counted, ...], Many(Nested(Counted), 1)] = ()

    def entered(self, entry: Entered) -> "History":
        """The same with an attempt that this member now takes part in: no other is opened before it has ended."""
        return replace(self, unsettled=(*_without(self.unsettled, entry), entry))

    def closed(self, entry: Entered, document: Closing, now_s: float) -> "History":
        """The same with the end of an attempt.

        Raises:
            PeerFault: the document does not close that attempt; wrong-phase for a Lost before the attempt's latest end;
                wrong-context for a certificate where an Erasure or Lost has taken its place.
        """
        attempt = entry.attempt
        attempt.check_closing(document)
        if isinstance(document, Lost) and now_s < attempt.terms.latest_end_s:
            raise PeerFault(
                Cause.WRONG_PHASE, "an attempt is lost after its latest end, not before", ["admin"]
            )
        link, certified = attempt.link(document.past), _without(self.certified, entry)
        known = tuple(each for each in self.settled if each.context == entry.context)
        if known not in {(), (link,)} and len(certified) == len(self.certified):
            raise PeerFault(
                Cause.WRONG_CONTEXT, "this member knows another end of the attempt", ["coordinator"]
            )
        others = tuple(each for each in self.settled if each not in known)
        return replace(
            self,
            settled=(*others, link),
            unsettled=_without(self.unsettled, entry),
            certified=(*certified, entry) if document.past.reason == NO_REASON else certified,
            spent=tuple(
                dict.fromkeys((*self.spent, *(entry.lineages if isinstance(document, Lost) else ())))
            ),
        )

    def settle(self, document: Closing, now_s: float) -> "History":
        """Close the attempt that this document is for; PeerFault as `closed`, wrong-context where there is none.

        The end that is known already changes nothing.
        """
        if any(
            (link.context, link.closing) == (document.context, document.past.closing) for link in self.settled
        ):
            return self
        return self.closed(self._open(document.context, (*self.unsettled, *self.certified)), document, now_s)

    def left_open(self, context: bytes) -> Entered:
        """The attempt of this context, whose end is not known; PeerFault(wrong-context) where there is none."""
        return self._open(context, self.unsettled)

    def _open(self, context: bytes, entries: tuple[Entered, ...]) -> Entered:
        for entry in entries:
            if entry.context == context:
                return entry
        raise PeerFault(
            Cause.WRONG_CONTEXT, "this member waits for the end of no such attempt", ["coordinator"]
        )

    def check(self, opening: Opening, context: bytes = b"") -> "History":
        """Check an opening's links against what is known, and take them over (protocol §4.3, clauses 4 and 5).

        Args:
            opening: with the chain as the coordinator tells it.
            context: the attempt that it opens, where this member takes part in it already.

        Raises:
            PeerFault: outcome-missing, or chain-broken.
        """
        if any(entry.context != context for entry in self.unsettled):
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
        if not set(self.settled) <= set(links):
            raise PeerFault(
                Cause.CHAIN_BROKEN,
                "the history omits an attempt that this member knows, or ends it otherwise",
            )
        check_places(opening)
        head = extend_chain(self.head, links[self.length :])
        return replace(self, head=head, length=len(links), settled=(), certified=())


def _without(entries: tuple[Entered, ...], entry: Entered) -> tuple[Entered, ...]:
    return tuple(each for each in entries if each.context != entry.context)
