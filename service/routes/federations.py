"""Federations, studies and cohorts: rosters, runs, cards, manifests, combined periods."""

from functools import partial
from typing import Annotated

from fastapi import Query, Request, Response

from service.access.guards import (
    CLOSING_GUARD,
    EVERYONE_GUARD,
    HEADS_GUARD,
    MEMBER_GUARD,
    PUBLISHING_GUARD,
    ROUNDS_GUARD,
    SITES_GUARD,
    WAITING_GUARD,
)
from service.coordination import combining
from service.coordination.canaries import check_pack, pack_blob, read_pack
from service.coordination.cohorts import Cohort
from service.coordination.coordinator import Coordinator
from service.coordination.sites import check_rehearsal, list_reports, store_report
from service.http.callers import ANONYMOUS_CALLER
from service.http.metering import in_thread
from service.http.problems import DECODING_CAUSES
from service.routes.common import (
    After,
    CombinationPath,
    Here,
    Hex32Path,
    Later,
    Made,
    MemberPath,
    Octets,
    Routes,
    TheCaller,
    Wait,
    in_pieces,
)
from service.routes.published import answer_caller, answer_published, shown_as
from service.storage.blobs import in_blob_thread
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import Hex32
from veilsum.protocol.messages import Enrolment, Lost, Pairing, Roster, Study
from veilsum.protocol.messages.cohort import MAX_CONTENT
from veilsum.protocol.record import CombinationIds, CombinedRecord, CombineRequest
from veilsum.protocol.tags import PROTOCOL_VERSION
from veilsum.study.canaries import PACK_BYTES_MAX

serve, combinations = Routes("federations"), Routes("combinations")
MAX_ROSTER_BYTES, MAX_STUDY_BYTES, MAX_CARD_BYTES = 16 << 20, MAX_CONTENT + 4096, 4096
MAX_PAIRING_BYTES = 16 << 20
MAX_REPORT_BYTES = 16 << 10


@serve("GET", rest.COORDINATOR_PATH, EVERYONE_GUARD)
async def coordinator(here: Here) -> rest.CoordinatorView:
    """The coordinator's public key, which rosters must name, and its federations."""
    ids = await here.federations.list_ids()
    return rest.CoordinatorView(
        public_key=here.key.public.hex(), protocol_version=PROTOCOL_VERSION, federations=tuple(ids)
    )


@serve(
    "PUT",
    rest.ROSTER_PATH,
    PUBLISHING_GUARD,
    *DECODING_CAUSES,
    Cause.WRONG_FEDERATION,
    Cause.BAD_SIGNATURE,
    Cause.ROSTER_ROLLBACK,
    Cause.CONFLICT,
    takes="a Roster message",
    max_body_size=MAX_ROSTER_BYTES,
    answers={201: {"description": "stored", "model": rest.FederationView}},
)
async def put_roster(
    federation: Hex32Path, body: Octets, here: Here, response: Response
) -> rest.FederationView:
    """Create a federation with its first roster (operator), or publish a roster with a higher number (admin, operator)."""
    roster = await in_thread(Roster.from_bytes, body)
    response.status_code = 201 if await here.federations.put_roster(federation, roster) else 200
    return await here.federations.federation_view(federation)


@serve.serve_published(rest.FEDERATION_PATH, Cause.NOT_FOUND, response_model=rest.FederationView)
async def federation(federation: Hex32Path, here: Here, request: Request) -> Response:
    """A federation's members, cohorts and rounds."""
    version = await here.federations.read_version(federation)
    return await answer_published(request, version, lambda: here.federations.federation_view(federation))


@serve.serve_published(rest.ROSTER_PATH, Cause.NOT_FOUND, gives="the newest Roster message")
async def roster(federation: Hex32Path, here: Here, request: Request) -> Response:
    """The newest roster, as the admin signed it."""
    version = await here.federations.read_version(federation)
    return await answer_published(
        request, version, lambda: here.federations.published_roster(federation), rest.OCTETS_TYPE
    )


@serve.serve_published(rest.CHAIN_PATH, Cause.NOT_FOUND, gives="the Chain message")
async def chain(federation: Hex32Path, here: Here, request: Request) -> Response:
    """How every attempt of the federation ended, oldest first."""
    version = await here.federations.read_version(federation)
    return await answer_published(
        request, version, lambda: here.federations.chain_bytes(federation), rest.OCTETS_TYPE
    )


@serve(
    "POST",
    rest.LOST_CONTEXTS,
    CLOSING_GUARD,
    *DECODING_CAUSES,
    Cause.NOT_FOUND,
    Cause.BAD_SIGNATURE,
    Cause.CONFLICT,
    takes="a Lost message",
    status_code=204,
    max_body_size=rest.MAX_MESSAGE_BYTES,
)
async def put_lost(federation: Hex32Path, body: Octets, here: Here, made: Made) -> None:
    """Close a context that this coordinator does not know, or a live round that it can't read (admin, by signature). Repeating the request changes nothing."""
    lost = Lost.from_bytes(body)
    made.append(f"context={lost.context.hex()}")
    await here.close_unknown(federation, lost)


@serve(
    "PUT",
    rest.STUDY_PATH,
    PUBLISHING_GUARD,
    *DECODING_CAUSES,
    Cause.NOT_FOUND,
    Cause.WRONG_FEDERATION,
    Cause.BAD_SIGNATURE,
    Cause.STUDY_REFUSED,
    takes="a Study message",
    max_body_size=MAX_STUDY_BYTES,
    answers={201: {"description": "stored", "model": rest.StudyView}},
)
async def put_study(
    federation: Hex32Path, study: Hex32Path, body: Octets, here: Here, response: Response
) -> rest.StudyView:
    """Publish a study, or a higher version of one (admin, operator). Repeating the request changes nothing."""
    signed = Study.from_bytes(body)
    if signed.hash.hex() != study:
        raise PeerFault(
            Cause.MALFORMED_REQUEST, f"the path names another study than the body, {signed.hash.hex()}"
        )
    response.status_code = 201 if await here.federations.put_study(federation, signed, here.now()) else 200
    return next(view for view in await here.federations.study_views(federation) if view.study == study)


@serve.serve_published(rest.STUDY_PATH, Cause.NOT_FOUND, gives="the Study message")
async def study(federation: Hex32Path, study: Hex32Path, here: Here, request: Request) -> Response:
    """A study, as the study key signed it."""

    async def read() -> bytes:
        return (await here.federations.read_study(federation, study)).to_bytes()

    return await answer_published(request, 0, read, rest.OCTETS_TYPE)


@serve(
    "PUT",
    rest.CANARIES_PATH,
    PUBLISHING_GUARD,
    Cause.NOT_FOUND,
    Cause.MALFORMED,
    takes="a canary pack",
    status_code=204,
    max_body_size=PACK_BYTES_MAX,
)
async def put_canaries(federation: Hex32Path, pack: Hex32Path, body: Octets, here: Here) -> None:
    """Store the canary pack that a published study names (admin, operator). Repeating the request changes nothing."""
    named = await here.federations.study_bodies(federation)
    await in_thread(check_pack, body, pack, named)
    await in_blob_thread(here.blobs.put, pack_blob(federation, pack), body)


@serve(
    "GET",
    rest.CANARIES_PATH,
    EVERYONE_GUARD,
    Cause.NOT_FOUND,
    Cause.STORAGE_DAMAGED,
    gives="the canary pack, a ZIP archive",
)
async def canaries(federation: Hex32Path, pack: Hex32Path, here: Here) -> Response:
    """The canary pack of this SHA-256."""
    return await in_pieces(partial(read_pack, here.blobs, federation, pack), rest.OCTETS_TYPE)


@serve(
    "POST",
    rest.PROBE_PATH,
    MEMBER_GUARD,
    takes="any bytes",
    status_code=204,
    max_body_size=rest.MAX_PROBE_BYTES,
)
async def probe(federation: Hex32Path, body: Octets) -> None:
    """Take bytes and forget them: a member measures how fast it can upload, and whether a proxy lets a chunk pass."""


@serve.serve_published(rest.STUDIES_PATH, Cause.NOT_FOUND, response_model=tuple[rest.StudyView, ...])
async def studies(federation: Hex32Path, here: Here, request: Request) -> Response:
    """All versions of all studies, in the order of their publication."""
    version = await here.federations.read_version(federation)
    return await answer_published(request, version, lambda: here.federations.study_views(federation))


@serve.serve_published(rest.RUNS_PATH, Cause.NOT_FOUND, response_model=rest.RunsView, guard=WAITING_GUARD)
async def runs(
    federation: Hex32Path, here: Here, request: Request, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """The runs of studies that have not expired, and those with an open attempt. With `after` and `wait_s`, waits for a change.

    Members wait here for a run to join. A signed request counts as a sign of life.
    """
    await here.federations.read_roster(federation)  # not-found for a stranger
    watch = here.runs.watch_of(federation)
    await here.runs.update_revision(federation)
    await here.polls.wait_change(watch, after, wait_s)
    view = await here.runs.runs_view(federation, here.now())
    # Time only takes runs away.
    return await answer_published(request, (view.revision, len(view.runs)), lambda: view)


@serve(
    "POST",
    rest.COHORTS_PATH,
    ROUNDS_GUARD,
    Cause.NOT_FOUND,
    Cause.STUDY_REFUSED,
    Cause.ALREADY_SUMMED,
    Cause.REPEAT_MISMATCH,
    Cause.TERMS_REFUSED,
    Cause.WEAK_PARAMETERS,
    Cause.COHORT_TOO_SMALL,
    status_code=201,
)
async def open_cohort(
    federation: Hex32Path, request: rest.CohortRequest, here: Here, made: Made
) -> rest.CohortView:
    """Open enrolment for one run of a study, for the time that the study sets (operator)."""
    view = await here.cohort_view(await here.open_cohort(federation, request))
    made.append(f"cohort={view.cohort}")
    return view


@serve.serve_published(rest.COHORT_PATH, Cause.NOT_FOUND, response_model=rest.CohortView, guard=WAITING_GUARD)
async def cohort(
    cohort: Hex32Path, here: Here, request: Request, caller: TheCaller, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """A cohort. With `after` and `wait_s`, waits for a change; a signed request waits for a manifest, for the cohort's formation or failure, or for a round.

    A signed request counts as a sign of life, which the operator's preflight shows. An invalid signature is ignored.
    """
    found = await here.catalogue.find_cohort(cohort)
    if caller is ANONYMOUS_CALLER:
        await here.polls.wait_change(found.watch, after, wait_s, len(found.roster.members))
    else:
        await here.polls.wait_request(found.watch, after, wait_s)
    return await answer_published(
        request, await _cohort_version(found, here), lambda: here.cohort_view(found)
    )


@serve.serve_published(
    rest.INVITATION_PATH, Cause.NOT_FOUND, response_model=rest.InvitationView, guard=WAITING_GUARD
)
async def invitation(cohort: Hex32Path, here: Here, request: Request, caller: TheCaller) -> Response:
    """Everything that a member needs to send a card: the cohort, the newest roster and the study.

    A signed request counts as a sign of life. Its signer is also shown the newest card that its key has signed.
    """
    found = await here.catalogue.find_cohort(cohort)
    card = None if caller is ANONYMOUS_CALLER else await found.newest_card(caller.name)

    async def build_invitation() -> rest.InvitationView:
        roster = await here.federations.published_roster(found.federation)
        return rest.InvitationView(
            cohort=await here.cohort_view(found),
            roster=roster.hex(),
            study=found.enrolling.study.to_bytes().hex(),
            card=None if card is None else card.hex(),
        )

    if card is not None:
        return await answer_caller(await build_invitation())
    version = await _cohort_version(found, here), await here.federations.read_version(found.federation)
    return await answer_published(request, version, build_invitation)


async def _cohort_version(found: Cohort, here: Coordinator) -> tuple[int, int]:
    """A version that changes with a cohort's view."""
    return found.version, len(await here.federations.read_links(found.federation))


@serve(
    "PUT",
    rest.CARD_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.CARD_CONFLICT,
    *DECODING_CAUSES,
    Cause.BAD_SIGNATURE,
    Cause.UNKNOWN_MEMBER,
    Cause.WRONG_COHORT,
    Cause.CARD_EXPIRED,
    Cause.LOW_ORDER_POINT,
    Cause.MLKEM_KEY_INVALID,
    takes="an Enrolment message",
    gives="the Cards message once there is a manifest; the cohort before, and where it failed",
    answers={200: {"model": rest.CohortView}},
    max_body_size=MAX_CARD_BYTES,
)
async def put_card(
    cohort: Hex32Path,
    member: MemberPath,
    body: Octets,
    here: Here,
    request: Request,
    after: After = -1,
    wait_s: Wait = 0.0,
) -> Response:
    """Enrol a member by its signed card; the last card ends enrolment. With `after` and `wait_s`, waits until enrolment ends.

    Answers with the member's Cards once there is a manifest, and with the cohort before.
    """
    enrolment = Enrolment.from_bytes(body)
    found = await here.catalogue.find_cohort(cohort)
    if enrolment.card.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the card")
    await found.receive(enrolment, here.now())

    async def show_cards() -> Response:
        await here.polls.wait_request(found.watch, after, wait_s)
        if found.window is not None and found.fault is None:
            return await _cards_response(found, member)
        return await _cohort_response(found, here, request)

    return Later(show_cards)


_SHOWN_CIPHERTEXTS = "the Ciphertexts message once the cohort is formed; the Cards message of a newer manifest; the cohort before, and where it failed"


@serve(
    "PUT",
    rest.PAIRING_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.PAIRING_CONFLICT,
    *DECODING_CAUSES,
    Cause.BAD_SIGNATURE,
    Cause.UNKNOWN_MEMBER,
    Cause.PAIRING_MISSHAPEN,
    takes="a Pairing message",
    gives=_SHOWN_CIPHERTEXTS,
    answers={200: {"model": rest.CohortView}},
    max_body_size=MAX_PAIRING_BYTES,
)
async def put_pairing(
    cohort: Hex32Path, member: MemberPath, body: Octets, here: Here, request: Request, wait_s: Wait = 0.0
) -> Response:
    """Pair a member with the others of the newest manifest; the last one forms the cohort. With `wait_s`, waits for that.

    A pairing of an earlier manifest changes nothing, and is answered by the newest one's Cards.
    """
    pairing = await in_thread(Pairing.from_bytes, body)
    found = await here.catalogue.find_cohort(cohort)
    if pairing.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the pairing")
    await found.receive_pairing(pairing, here.now())
    return Later(partial(_show_ciphertexts, found, member, pairing.manifest, here, request, wait_s))


@serve(
    "GET",
    rest.PAIRING_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.UNKNOWN_MEMBER,
    gives=_SHOWN_CIPHERTEXTS,
    answers={200: {"model": rest.CohortView}},
)
async def ciphertexts(
    cohort: Hex32Path,
    member: MemberPath,
    here: Here,
    request: Request,
    manifest: Annotated[Hex32, Query(description="hash of the manifest that the member paired under")],
    wait_s: Wait = 0.0,
) -> Response:
    """The others' ciphertexts for a member that has paired. With `wait_s`, waits until the cohort is formed."""
    found = await here.catalogue.find_cohort(cohort)
    return await _show_ciphertexts(found, member, bytes.fromhex(manifest), here, request, wait_s)


async def _show_ciphertexts(
    found: Cohort, member: str, manifest: bytes, here: Coordinator, request: Request, wait_s: float
) -> Response:
    """Answer a member that paired under a manifest, once there is something new for it."""
    if not found.is_settled and found.window is not None and found.window.manifest.hash == manifest:
        await here.polls.wait_request(found.watch, found.version, wait_s)
    if found.window is None or found.fault is not None:
        return await _cohort_response(found, here, request)
    if found.window.manifest.hash != manifest:
        return await _cards_response(found, member)
    if not found.formed:
        return await _cohort_response(found, here, request)
    return Response(await found.ciphertexts_for(member), media_type=rest.OCTETS_TYPE)


async def _cohort_response(found: Cohort, here: Coordinator, request: Request) -> Response:
    path, version = rest.COHORT_PATH.format(cohort=found.id), await _cohort_version(found, here)
    return await shown_as(request, path, version, lambda: here.cohort_view(found))


@serve("PUT", rest.SITE_PATH, SITES_GUARD, Cause.WRONG_PHASE, status_code=204, max_body_size=MAX_REPORT_BYTES)
async def put_site(cohort: Hex32Path, member: MemberPath, report: rest.SiteReport, here: Here) -> None:
    """Store what a member's site reports in a rehearsal, in place of its earlier report."""
    found = await here.catalogue.find_cohort(cohort)
    check_rehearsal(found.enrolling.period)
    await in_blob_thread(store_report, here.blobs, cohort, member, report, here.now())


@serve("GET", rest.SITES_PATH, ROUNDS_GUARD, Cause.NOT_FOUND)
async def sites(cohort: Hex32Path, here: Here) -> rest.SitesView:
    """What the sites of a rehearsal reported last (operator)."""
    await here.catalogue.find_cohort(cohort)
    return await in_blob_thread(list_reports, here.blobs, cohort)


@serve("POST", rest.CLOSE_PATH, ROUNDS_GUARD, Cause.NOT_FOUND)
async def close(cohort: Hex32Path, here: Here) -> rest.CohortView:
    """End enrolment now, with the cards received so far (operator)."""
    found = await here.catalogue.find_cohort(cohort)
    await found.close_enrolment(here.now())
    return await here.cohort_view(found)


@serve.serve_published(rest.MANIFEST_PATH, Cause.NOT_FOUND, Cause.WRONG_PHASE, gives="the Manifest message")
async def manifest(cohort: Hex32Path, here: Here, request: Request) -> Response:
    """The cohort's members and numbers, once it is formed."""
    found = await here.catalogue.find_cohort(cohort)
    return await answer_published(
        request, 0, lambda: in_thread(found.formed_manifest().to_bytes), rest.OCTETS_TYPE
    )


@serve(
    "GET", rest.CARDS_PATH, MEMBER_GUARD, Cause.WRONG_PHASE, Cause.UNKNOWN_MEMBER, gives="the Cards message"
)
async def cards(cohort: Hex32Path, member: MemberPath, here: Here) -> Response:
    """The newest manifest with the cards that a member needs: all of them in a cohort of up to 200."""
    return await _cards_response(await here.catalogue.find_cohort(cohort), member)


async def _cards_response(found: Cohort, member: str) -> Response:
    body = await in_thread(lambda: found.cards_for(member).to_bytes())
    return Response(body, media_type=rest.OCTETS_TYPE)


@combinations(
    "POST",
    rest.COMBINATIONS_PATH,
    ROUNDS_GUARD,
    Cause.NOT_FOUND,
    Cause.WRONG_PHASE,
    Cause.TERMS_REFUSED,
    Cause.SUM_CHECK_FAILED,
    Cause.STORAGE_DAMAGED,
    status_code=201,
)
async def combine(federation: Hex32Path, request: CombineRequest, here: Here) -> CombinedRecord:
    """Add up the exact sums of several periods of one question, and solve for one head (operator)."""
    return await here.combinations.combine(federation, request)


@combinations("GET", rest.COMBINATIONS_PATH, EVERYONE_GUARD, Cause.NOT_FOUND, name="combinations")
async def combination_ids(federation: Hex32Path, here: Here) -> CombinationIds:
    """A federation's combinations, those with the newest rounds first."""
    await here.federations.read_roster(federation)  # not-found for a stranger
    return CombinationIds(
        tuple(each.combination for each in await here.combinations.list_records(federation))
    )


@combinations.serve_published(rest.COMBINATION_PATH, Cause.NOT_FOUND, response_model=CombinedRecord)
async def combination(combination: CombinationPath, here: Here, request: Request) -> Response:
    """The signed record of a combination."""
    return await answer_published(
        request, 0, lambda: in_blob_thread(combining.stored_record, combination, here.blobs, here.key.public)
    )


WEIGHTS_DESCRIPTION = "tensors `weights` (l, C) and, with a bias, `bias` (C,)"


@combinations(
    "GET",
    rest.COMBINED_WEIGHTS_PATH,
    HEADS_GUARD,
    Cause.NOT_FOUND,
    gives=WEIGHTS_DESCRIPTION,
    kind=rest.SAFETENSORS_TYPE,
)
async def weights(combination: CombinationPath, here: Here) -> Response:
    """The head's weights, float64, as safetensors."""
    return await in_pieces(partial(combining.stored_weights, combination, here.blobs, here.key.public))
