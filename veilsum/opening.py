"""The operator's next round; where rare classes are withheld, the round that counts how many members hold each class comes first."""

from collections.abc import Callable

from client_sdk.operator import Operator
from protocol.messages import LedgerException
from protocol.preflight import PreflightView
from protocol.rest import CohortView, RoundRequest, RoundView
from veilsum.remote import changes

Told = Callable[[RoundView], None]


def open_in_turn(
    client: Operator, cohort: str, request: RoundRequest, *, recount: bool = False, tell: Told
) -> RoundView:
    """Open a cohort's next round, after its classes have been counted where they must be.

    Interrupted, it goes on where it was when it is called again: counts that stand are used, and a count under way is followed.

    Args:
        client: with the operator's token.
        cohort: its id.
        request: the round of FFC statistics.
        recount: count again although counts stand, for members whose records have changed since.
        tell: is told how the count goes.

    Returns:
        The round; or the indicator round, where that ended without counts.

    Raises:
        PeerFault: what the coordinator refuses.
    """
    view = client.cohort(cohort)
    if _counts_first(view, recount=recount):
        counting = _running(client, view, request) or client.open_round(cohort, _counting(request, view))
        rounds = changes(lambda after: client.round(counting.round, after))
        while not (counting := next(rounds)).ended and counting.state != "erasing":
            tell(counting)
        if counting.state != "done":
            return counting
        request = request.model_copy(
            update={"exceptions": _exceptions(request, counting.sequence, named=False)}
        )
    return client.open_round(cohort, request)


def foreseen(
    client: Operator, cohort: str, request: RoundRequest, *, recount: bool = False
) -> tuple[PreflightView, ...]:
    """What `open_in_turn` would open now, in that order. Nothing is opened.

    Where counts come first, the round after them is foreseen without its exceptions, which are signed for a later place.

    Raises:
        PeerFault: what the coordinator would refuse.
    """
    view = client.cohort(cohort)
    if not _counts_first(view, recount=recount):
        return (client.preflight(cohort, request),)
    count = client.preflight(cohort, _counting(request, view))
    return count, client.preflight(cohort, request.model_copy(update={"exceptions": ()}))


def _counts_first(view: CohortView, *, recount: bool) -> bool:
    return view.withhold and (recount or view.indicator is None)


def _running(client: Operator, view: CohortView, request: RoundRequest) -> RoundView | None:
    """A count over as many classes that is under way."""
    newest = client.round(view.rounds[-1]) if view.rounds else None
    if newest is None or newest.ended or newest.terms is None:
        return None
    alike = (newest.terms.statistic, newest.terms.classes) == ("indicator", request.classes)
    return newest if alike else None


def _counting(request: RoundRequest, view: CohortView) -> RoundRequest:
    return RoundRequest(
        statistic="indicator",
        classes=request.classes,
        extractor=request.extractor,
        records_max=request.records_max,
        lifetime_s=request.lifetime_s,
        windows=request.windows,
        heard_within_s=request.heard_within_s,
        exceptions=_exceptions(request, view.next_sequence, named=True),
    )


def _exceptions(request: RoundRequest, sequence: int, *, named: bool) -> tuple[str, ...]:
    """Of the admin's exceptions those that are signed for this sequence, or those that are not."""
    return tuple(
        text
        for text in request.exceptions
        if (LedgerException.from_bytes(bytes.fromhex(text)).sequence == sequence) == named
    )
