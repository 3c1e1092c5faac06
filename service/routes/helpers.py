"""Rounds with mask helpers: the helpers' cards, openings, and how attempts have ended. The rest is every round's."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from protocol import rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.messages import HelperCard
from protocol.preflight import PreflightView
from service.access.guards import GuardedRoute
from service.problems import DECODING, declared
from service.routes.common import (
    ANYBODY,
    MEMBER,
    ROUNDS,
    After,
    Here,
    Hex32Path,
    Made,
    MemberPath,
    Octets,
    Wait,
    octets_in,
    octets_out,
)

router = APIRouter(tags=["helpers"], route_class=GuardedRoute)
PositionPath = Annotated[int, Path(ge=0, le=1 << 32)]
_REFUSED = (
    *ROUNDS.causes,
    Cause.NOT_FOUND,
    Cause.CONFLICT,
    Cause.WEAK_PARAMETERS,
    Cause.COHORT_TOO_SMALL,
    Cause.TERMS_REFUSED,
    Cause.LEDGER_REFUSED,
    Cause.MALFORMED,
    Cause.DUPLICATE,
)
"""Why a round is not opened."""


@router.get(
    rest.HELPERS,
    dependencies=ANYBODY.dependencies,
    responses=declared(Cause.NOT_FOUND, Cause.WEAK_PARAMETERS),
)
async def helpers(
    federation: Hex32Path, here: Here, after: After = -1, wait_s: Wait = 0.0
) -> rest.HelpersView:
    """Where a federation's mask helpers stand; with `after` and `wait_s`, as soon as that changes."""
    desk = await here.desk(federation)
    await desk.view(here.now())
    await here.changed(desk.watch, after, wait_s)
    return await desk.view(here.now())


@router.put(
    rest.HELPER_CARD,
    dependencies=MEMBER.dependencies,
    max_body_size=4096,
    openapi_extra=octets_in("a HelperCard message"),
    responses=declared(
        *MEMBER.causes,
        Cause.WRONG_PHASE,
        Cause.CARD_CONFLICT,
        *DECODING,
        Cause.WEAK_PARAMETERS,
        Cause.WRONG_COHORT,
        Cause.NOT_A_DECRYPTOR,
        Cause.BAD_SIGNATURE,
        Cause.CARD_EXPIRED,
        Cause.LOW_ORDER_POINT,
    ),
)
async def put_card(federation: Hex32Path, member: MemberPath, body: Octets, here: Here) -> rest.HelpersView:
    """A helper's signed card for the next attempt; the same again changes nothing."""
    card = HelperCard.from_bytes(body)
    desk = await here.desk(federation)
    if card.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another helper than the card")
    await desk.receive(card, here.now())
    return await desk.view(here.now())


@router.post(
    rest.HELPER_ROUNDS,
    dependencies=ROUNDS.dependencies,
    status_code=201,
    responses=declared(*_REFUSED),
)
async def open_round(
    federation: Hex32Path, request: rest.HelperRoundRequest, here: Here, made: Made
) -> rest.RoundView:
    """Open the federation's next attempt with mask helpers (operator), once three helpers or four have sent their cards."""
    view = (await here.open_helper_round(federation, request)).view()
    made.append(f"round_id={view.round}")
    return view


@router.post(rest.HELPER_PREFLIGHT, dependencies=ROUNDS.dependencies, responses=declared(*_REFUSED))
async def preflight(federation: Hex32Path, request: rest.HelperRoundRequest, here: Here) -> PreflightView:
    """What would be opened now; nothing is (operator). What would not be opened is refused as there."""
    return await here.helper_preflight(federation, request)


@router.get(
    rest.HELPER_CLOSING,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={
        **octets_out("the HelperCertificate, or the admin's HelperLost"),
        **declared(Cause.NOT_FOUND, Cause.WEAK_PARAMETERS),
    },
)
async def closing(federation: Hex32Path, position: PositionPath, here: Here) -> Response:
    """How an attempt of the federation has ended, by its place among them, for helpers who have missed it."""
    desk = await here.desk(federation)
    return Response(await desk.closing(position), media_type=rest.OCTETS)
