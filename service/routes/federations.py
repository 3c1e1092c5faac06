"""Federations, studies and cohorts: rosters, runs, cards, manifests."""

import asyncio

from fastapi import APIRouter, Response

from protocol import rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import KeyCard, Roster, Study
from protocol.messages.study import MAX_CONTENT
from protocol.tags import PROTOCOL_VERSION
from service.access.guards import GuardedRoute
from service.coordinator import Coordinator
from service.problems import DECODING, declared, not_found
from service.routes.common import (
    ANYBODY,
    MEMBER,
    PUBLISHING,
    ROUNDS,
    WAITING,
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

router = APIRouter(tags=["federations"], route_class=GuardedRoute)
MAX_ROSTER_BYTES, MAX_STUDY_BYTES = 16 << 20, MAX_CONTENT + 4096


@router.get(rest.COORDINATOR, dependencies=ANYBODY.dependencies, responses=declared())
async def coordinator(here: Here) -> rest.CoordinatorView:
    """The coordinator's public key, which a roster must name."""
    return rest.CoordinatorView(public_key=here.key.public.hex(), protocol_version=PROTOCOL_VERSION)


@router.put(
    rest.ROSTER,
    dependencies=PUBLISHING.dependencies,
    max_body_size=MAX_ROSTER_BYTES,
    openapi_extra=octets_in("a Roster message"),
    response_model=rest.FederationView,
    responses={
        201: {"description": "stored", "model": rest.FederationView},
        **declared(
            *PUBLISHING.causes,
            *DECODING,
            Cause.WRONG_FEDERATION,
            Cause.BAD_SIGNATURE,
            Cause.ROSTER_ROLLBACK,
            Cause.CONFLICT,
        ),
    },
)
async def put_roster(federation: Hex32Path, body: Octets, here: Here) -> Response:
    """Create a federation by its first roster (operator), or replace the roster by one with a higher number (admin, operator)."""
    roster = await asyncio.to_thread(Roster.from_bytes, body)
    new = await here.federations.put_roster(federation, roster)
    return await _shown(here, federation, 201 if new else 200)


@router.get(
    rest.FEDERATION,
    dependencies=ANYBODY.dependencies,
    response_model=rest.FederationView,
    responses=declared(Cause.NOT_FOUND),
)
async def federation(federation: Hex32Path, here: Here) -> Response:
    """A federation's members, cohorts and rounds."""
    return await _shown(here, federation)


async def _shown(here: Coordinator, federation: str, status: int = 200) -> Response:
    view = await here.federations.view(federation)
    body = await asyncio.to_thread(view.model_dump_json)
    return Response(body, status, media_type="application/json")


@router.get(
    rest.ROSTER,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={**octets_out("the newest Roster message"), **declared(Cause.NOT_FOUND)},
)
async def roster(federation: Hex32Path, here: Here) -> Response:
    """The newest roster, as the admin signed it."""
    newest = await here.federations.rosters.body(federation)
    if newest is None:
        raise not_found("federation")
    return Response(newest, media_type=rest.OCTETS)


@router.get(
    rest.CHAIN,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={**octets_out("the Chain message"), **declared(Cause.NOT_FOUND)},
)
async def chain(federation: Hex32Path, here: Here) -> Response:
    """How every attempt of the federation ended, oldest first."""
    await here.federations.newest(federation)  # not-found for a stranger
    return Response(await here.federations.chain(federation), media_type=rest.OCTETS)


@router.put(
    rest.STUDY,
    dependencies=PUBLISHING.dependencies,
    max_body_size=MAX_STUDY_BYTES,
    openapi_extra=octets_in("a Study message"),
    responses={
        201: {"description": "stored", "model": rest.StudyView},
        **declared(
            *PUBLISHING.causes,
            *DECODING,
            Cause.NOT_FOUND,
            Cause.WRONG_FEDERATION,
            Cause.BAD_SIGNATURE,
            Cause.STUDY_REFUSED,
        ),
    },
)
async def put_study(
    federation: Hex32Path, study: Hex32Path, body: Octets, here: Here, response: Response
) -> rest.StudyView:
    """Publish a study, or a higher version of one (admin, operator). The same again changes nothing."""
    signed = Study.from_bytes(body)
    if signed.hash.hex() != study:
        raise PeerFault(
            Cause.MALFORMED_REQUEST, f"the path names another study than the body, {signed.hash.hex()}"
        )
    response.status_code = 201 if await here.studies.put(federation, signed, here.now()) else 200
    return next(view for view in await here.studies.views(federation) if view.study == study)


@router.get(
    rest.STUDY,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={**octets_out("the Study message"), **declared(Cause.NOT_FOUND)},
)
async def study(federation: Hex32Path, study: Hex32Path, here: Here) -> Response:
    """A study, as the study key signed it."""
    return Response(await here.studies.body(federation, study), media_type=rest.OCTETS)


@router.get(rest.STUDIES, dependencies=ANYBODY.dependencies, responses=declared(Cause.NOT_FOUND))
async def studies(federation: Hex32Path, here: Here) -> tuple[rest.StudyView, ...]:
    """All versions of all studies, in the order of their publication."""
    return await here.studies.views(federation)


@router.get(
    rest.RUNS,
    dependencies=WAITING.dependencies,
    openapi_extra=WAITING.document,
    responses=declared(Cause.NOT_FOUND),
)
async def runs(federation: Hex32Path, here: Here, after: After = -1, wait_s: Wait = 0.0) -> rest.RunsView:
    """The runs of studies that have not expired; with `after` and `wait_s`, as soon as they change.

    Here members wait for a run to join. One that signs is heard from.
    """
    await here.federations.newest(federation)  # not-found for a stranger
    watch = here.runs.watch(federation)
    await here.runs.look(federation)
    await here.changed(watch, after, wait_s)
    return await here.runs.view(federation, here.now())


@router.post(
    rest.COHORTS,
    dependencies=ROUNDS.dependencies,
    status_code=201,
    responses=declared(
        *ROUNDS.causes,
        Cause.NOT_FOUND,
        Cause.STUDY_REFUSED,
        Cause.ALREADY_SUMMED,
        Cause.REPEAT_MISMATCH,
        Cause.TERMS_REFUSED,
        Cause.WEAK_PARAMETERS,
        Cause.COHORT_TOO_SMALL,
    ),
)
async def open_cohort(
    federation: Hex32Path, request: rest.CohortRequest, here: Here, made: Made
) -> rest.CohortView:
    """Open enrolment for one run of a study, for as long as the study says (operator)."""
    view = await here.cohort_view(await here.open_cohort(federation, request))
    made.append(f"cohort={view.cohort}")
    return view


@router.get(
    rest.COHORT,
    dependencies=WAITING.dependencies,
    openapi_extra=WAITING.document,
    responses=declared(Cause.NOT_FOUND),
)
async def cohort(cohort: Hex32Path, here: Here, after: After = -1, wait_s: Wait = 0.0) -> rest.CohortView:
    """A cohort as it stands; with `after` and `wait_s`, as soon as it changes.

    Here members wait for a round. One that signs is heard from, which the operator's preflight shows; a signature that does not hold
    changes nothing.
    """
    found = await here.cohort(cohort)
    await here.changed(found.watch, after, wait_s, len(found.roster.members))
    return await here.cohort_view(found)


@router.put(
    rest.CARD,
    dependencies=MEMBER.dependencies,
    max_body_size=4096,
    openapi_extra=octets_in("a KeyCard message"),
    responses=declared(
        *MEMBER.causes,
        Cause.WRONG_PHASE,
        Cause.CARD_CONFLICT,
        *DECODING,
        Cause.BAD_SIGNATURE,
        Cause.UNKNOWN_MEMBER,
        Cause.WRONG_COHORT,
        Cause.CARD_EXPIRED,
        Cause.LOW_ORDER_POINT,
    ),
)
async def put_card(cohort: Hex32Path, member: MemberPath, body: Octets, here: Here) -> rest.CohortView:
    """A member enrols by its signed card; the last card forms the cohort."""
    card = KeyCard.from_bytes(body)
    found = await here.cohort(cohort)
    if card.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the card")
    await found.receive(card, here.now())
    return await here.cohort_view(found)


@router.post(
    rest.CLOSE, dependencies=ROUNDS.dependencies, responses=declared(*ROUNDS.causes, Cause.NOT_FOUND)
)
async def close(cohort: Hex32Path, here: Here) -> rest.CohortView:
    """End enrolment now, with the cards that came (operator)."""
    found = await here.cohort(cohort)
    await found.close()
    return await here.cohort_view(found)


@router.get(
    rest.MANIFEST,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={**octets_out("the Manifest message"), **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE)},
)
async def manifest(cohort: Hex32Path, here: Here) -> Response:
    """The cohort's members and numbers, once it is formed."""
    return Response((await here.cohort(cohort)).formed().to_bytes(), media_type=rest.OCTETS)


@router.get(
    rest.CARDS,
    dependencies=MEMBER.dependencies,
    response_class=Response,
    responses={
        **octets_out("the Cards message"),
        **declared(*MEMBER.causes, Cause.WRONG_PHASE, Cause.UNKNOWN_MEMBER),
    },
)
async def cards(cohort: Hex32Path, member: MemberPath, here: Here) -> Response:
    """The manifest with the cards that a member needs: all of them in a cohort of up to 200."""
    found = await asyncio.to_thread((await here.cohort(cohort)).cards_for, member)
    return Response(found.to_bytes(), media_type=rest.OCTETS)
