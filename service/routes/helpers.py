"""Rounds with mask helpers: the helpers' cards, openings, and how attempts have ended. The rest is every round's."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from protocol import rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.messages import HelperCard
from service.problems import DECODING, declared
from service.routes.common import (
    After,
    Bearer,
    Here,
    Hex32Path,
    MemberPath,
    Octets,
    Operator,
    Wait,
    octets_in,
    octets_out,
)

router = APIRouter(tags=["helpers"])
PositionPath = Annotated[int, Path(ge=0, le=1 << 32)]


@router.get(rest.HELPERS, responses=declared(Cause.NOT_FOUND, Cause.WEAK_PARAMETERS))
async def helpers(
    federation: Hex32Path, here: Here, after: After = -1, wait_s: Wait = 0.0
) -> rest.HelpersView:
    """Where a federation's mask helpers stand; with `after` and `wait_s`, as soon as that changes."""
    desk = await here.helping.desk(federation)
    await desk.view(here.now())
    await here.changed(desk.watch, after, wait_s)
    return await desk.view(here.now())


@router.put(
    rest.HELPER_CARD,
    max_body_size=4096,
    openapi_extra=octets_in("a HelperCard message"),
    responses=declared(
        Cause.NOT_FOUND,
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
    desk, card = await here.helping.desk(federation), HelperCard.from_bytes(body)
    if card.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another helper than the card")
    await desk.receive(card, here.now())
    return await desk.view(here.now())


@router.post(
    rest.HELPER_ROUNDS,
    status_code=201,
    dependencies=[Bearer, Operator],
    responses=declared(
        Cause.UNAUTHORISED,
        Cause.NOT_FOUND,
        Cause.CONFLICT,
        Cause.WEAK_PARAMETERS,
        Cause.COHORT_TOO_SMALL,
        Cause.TERMS_REFUSED,
        Cause.LEDGER_REFUSED,
        Cause.MALFORMED,
        Cause.DUPLICATE,
    ),
)
async def open_round(federation: Hex32Path, request: rest.HelperRoundRequest, here: Here) -> rest.RoundView:
    """Open the federation's next attempt with mask helpers (operator), once three helpers or four have sent their cards."""
    return (await here.open_helper_round(federation, request)).view()


@router.get(
    rest.HELPER_CLOSING,
    response_class=Response,
    responses={
        **octets_out("the HelperCertificate, or the admin's HelperLost"),
        **declared(Cause.NOT_FOUND, Cause.WEAK_PARAMETERS),
    },
)
async def closing(federation: Hex32Path, position: PositionPath, here: Here) -> Response:
    """How an attempt of the federation has ended, by its place among them, for helpers who have missed it."""
    desk = await here.helping.desk(federation)
    return Response(desk.closing(position).to_bytes(), media_type=rest.OCTETS)
