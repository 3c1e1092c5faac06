"""Which classes a main round withholds, by the counts of an indicator round before it (protocol §9)."""

from collections.abc import Sequence

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Manifest, Roster
from protocol.published import RareView
from protocol.recount import class_floor, default_margin, rare_classes
from protocol.rest import RoundRequest
from service.indicating import NOTHING, Clauses
from service.past import Brief


def counted(rounds: Sequence[Brief]) -> Brief | None:
    """The newest indicator round of a cohort that was finished."""
    done = (each for each in reversed(rounds) if each.counts and each.state == "done")
    return next(done, None)


def standing(rounds: Sequence[Brief]) -> Brief | None:
    """The same, as long as no result rests on its counts."""
    found = counted(rounds)
    return None if found is None or _rested_on(found, rounds) else found


def spent(rounds: Sequence[Brief], *, over: bool) -> tuple[Brief, ...]:
    """Finished indicator rounds whose disclosure nobody needs any more.

    A result rests on them, they were taken again, or the cohort is `over`: a card of it has expired.
    """
    kept = None if over else standing(rounds)
    return tuple(each for each in rounds if each.counts and each.state == "done" and each is not kept)


def clauses_of(request: RoundRequest, roster: Roster, manifest: Manifest, rounds: Sequence[Brief]) -> Clauses:
    """What a round withholds, by the last counts among the rounds of its cohort, which stand oldest first.

    Raises:
        PeerFault: terms-refused, where an indicator round has to come first, counted other classes, or leaves none to sum; where
            one is asked for that nobody needs.
    """
    if request.statistic == "indicator":
        if not roster.withhold:
            raise _refused(
                "the admin signed that rare classes are published: an indicator round would show all members how many hold each "
                "class, for nothing; open the round itself"
            )
        return NOTHING
    if not roster.withhold:
        return NOTHING
    found = counted(rounds)
    if found is None:
        raise _refused(
            "the admin demands that rare classes are withheld, and no indicator round of this cohort has been finished: open "
            "one first, with statistic indicator (`veilsum operator round open` does), then this round again"
        )
    if len(found.holders) != request.classes:
        raise _refused(
            f"indicator round {found.id} counted {len(found.holders)} classes, and this round is over {request.classes}: open "
            "another indicator round, over as many classes"
        )
    margin = default_margin(manifest) if request.margin is None else request.margin
    floor = class_floor(manifest, margin)
    withheld = rare_classes(found.holders, floor)
    if len(withheld) == request.classes:
        raise _refused(
            f"each class is held by fewer than m = {floor} members, so all would be withheld: pass a smaller margin than "
            f"{margin}, wait for more members, or have the admin sign a roster with --publish-rare-classes"
        )
    return {
        "indicator": bytes.fromhex(found.context),
        "margin": margin,
        "withheld": withheld,
        "evicted": tuple(sorted(found.evicted)),
    }


def counts_first(request: RoundRequest, roster: Roster, rounds: Sequence[Brief]) -> bool:
    """Whether classes have to be counted before this round: what counts there are, if any, are of other classes."""
    if request.statistic == "indicator" or not roster.withhold:
        return False
    found = counted(rounds)
    return found is None or len(found.holders) != request.classes


def reason(attempt: Attempt, rounds: Sequence[Brief]) -> RareView | None:
    """Why a round withholds what it does, for its record; None where it rests on no indicator round."""
    terms = attempt.terms
    for each in rounds:
        if each.context == terms.indicator.hex():
            return RareView(
                indicator=each.context,
                margin=terms.margin,
                floor=class_floor(attempt.manifest, terms.margin),
                holders=each.holders,
            )
    return None


def _rested_on(indicator: Brief, rounds: Sequence[Brief]) -> bool:
    return any(each.state == "done" and each.indicator == indicator.context for each in rounds)


def _refused(detail: str) -> PeerFault:
    return PeerFault(Cause.TERMS_REFUSED, detail)
