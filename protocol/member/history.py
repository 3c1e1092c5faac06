"""What a member remembers of the federation's rounds, from one cohort to the next (protocol §4.3, §8)."""

from dataclasses import replace
from typing import Annotated

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import U64, Digest, Fixed, Many, Nested, Struct, UInt
from protocol.errors import PeerFault
from protocol.ledger import Opened
from protocol.messages import (
    EMPTY_CHAIN,
    Certificate,
    Link,
    Lost,
    Opening,
    Survivor,
    SurvivorSet,
    extend_chain,
)
from protocol.messages.base import MAX_MEMBERS
from protocol.messages.opening import MAX_CLASSES, MAX_LINKS
from protocol.opening_rules import check_places
from protocol.proposal import opened_by


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


class Unsettled(Struct):
    """An attempt that this member has uploaded to, or voted in, and whose end it has not seen.

    Attributes:
        attempt: what its certificate is checked against; there is no secret in it.
        lineages: lin_u of the upload, if there was one.
        signed: the set that this member signed, if it did.
    """

    attempt: Annotated[Attempt, Nested(Attempt)]
    lineages: Annotated[tuple[bytes, ...], Many(Fixed(8), 1)]
    signed: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]


class History(Struct):
    """The chain as far as this member knows it.

    Attributes:
        head: fold of the links seen; `length` counts them.
        settled: links of attempts whose end it has seen since: the chain must hold them as they are.
        unsettled: attempts that it uploaded to or voted in: it opens no other before it has seen how they ended.
        signed: sets it signed in attempts that were lost without its report: they count as opened.
        spent: lineages that stood in a lost attempt whose opened sets are not all known.
        counted: the last indicator round.
    """

    head: Digest = EMPTY_CHAIN
    length: U64 = 0
    settled: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)] = ()
    unsettled: Annotated[tuple[Unsettled, ...], Many(Nested(Unsettled), MAX_LINKS)] = ()
    signed: Annotated[tuple[Opened, ...], Many(Nested(Opened), MAX_LINKS)] = ()
    spent: Annotated[tuple[bytes, ...], Many(Fixed(8), MAX_LINKS)] = ()
    counted: Annotated[tuple[Counted, ...], Many(Nested(Counted), 1)] = ()

    def entered(self, entry: Unsettled) -> "History":
        """The same with an attempt that this member now takes part in: no other is opened before it has ended."""
        others = tuple(other for other in self.unsettled if other.attempt.context != entry.attempt.context)
        return replace(self, unsettled=(*others, entry))

    def closed(self, entry: Unsettled, document: Certificate | Lost) -> "History":
        """The same with the end of an attempt.

        Raises:
            PeerFault: the certificate, or the admin's Lost, is not valid for that attempt.
        """
        attempt, signed, spent = entry.attempt, self.signed, self.spent
        if isinstance(document, Lost):
            complete = attempt.check_lost(document)
            counted = attempt.past(document).sets
            signed += tuple(opened_by(attempt, own.survivors) for own in entry.signed if own not in counted)
            spent += () if complete else entry.lineages
        else:
            attempt.check_certificate(document)
        settled = (*self.settled, attempt.link(attempt.past(document)))
        # Once each: what a crash cut off between history and phase is done again.
        return replace(
            self,
            settled=tuple(dict.fromkeys(settled)),
            unsettled=tuple(o for o in self.unsettled if o.attempt.context != attempt.context),
            signed=tuple(dict.fromkeys(signed)),
            spent=tuple(dict.fromkeys(spent)),
        )

    def settle(self, document: Certificate | Lost) -> "History":
        """Close the unsettled attempt that this certificate or Lost is for.

        Raises:
            PeerFault: wrong-context where there is none, or as `closed`.
        """
        return self.closed(self.left_open(document.context), document)

    def left_open(self, context: bytes) -> Unsettled:
        """The attempt of this context, whose end is not known; PeerFault(wrong-context) where there is none."""
        for entry in self.unsettled:
            if entry.attempt.context == context:
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
        if any(entry.attempt.context != context for entry in self.unsettled):
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
        return replace(self, head=head, length=len(links), settled=())
