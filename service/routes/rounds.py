"""Rounds: opening, uploads, answers, results."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT

from protocol import published, rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Lost, Upload
from protocol.preflight import PreflightView
from service import sent
from service.access.guards import GuardedRoute
from service.coordinator import Coordinator
from service.documents import DISCLOSURE, EVICTIONS, HEAD, SUMS, document_name
from service.problems import DECODING, declared, not_found
from service.rounds import Round
from service.routes.common import (
    ANYBODY,
    CLOSING,
    HEADS,
    MEMBER,
    READERS,
    ROUNDS,
    After,
    BodyDigest,
    Here,
    Hex32Path,
    IndexPath,
    Made,
    MemberPath,
    NamePath,
    Octets,
    TheCaller,
    TheRound,
    Wait,
    in_pieces,
    octets_in,
    octets_out,
    one_stream,
    signed_headers,
)
from service.telemetry.metrics import UPLOAD_BYTES

router = APIRouter(tags=["rounds"], route_class=GuardedRoute)
MAX_CHUNK_BYTES = 32 << 20
EVENTS = "text/event-stream"
_EVENTS_SCHEMA = {
    "itemSchema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    }
}
KEEPALIVE_S = 15.0
"""Between two signs of life of a stream: proxies give up on one that says nothing."""
_REFUSED = (
    *ROUNDS.causes,
    Cause.NOT_FOUND,
    Cause.WRONG_PHASE,
    Cause.CONFLICT,
    Cause.ALREADY_SUMMED,
    Cause.ROSTER_ROLLBACK,
    Cause.STUDY_REFUSED,
    Cause.TERMS_REFUSED,
    Cause.INDICATOR_MISMATCH,
    Cause.REPEAT_MISMATCH,
    Cause.WEAK_PARAMETERS,
)
"""Why a round is not opened."""


@router.post(
    rest.ROUNDS,
    dependencies=ROUNDS.dependencies,
    status_code=201,
    responses=declared(*_REFUSED),
)
async def open_round(cohort: Hex32Path, request: rest.RoundRequest, here: Here, made: Made) -> rest.RoundView:
    """Open the next step of a cohort's run, or again one that ended VOID (operator)."""
    view = (await here.open_round(cohort, request)).view()
    made.append(f"round_id={view.round}")
    return view


@router.post(rest.PREFLIGHT, dependencies=ROUNDS.dependencies, responses=declared(*_REFUSED))
async def preflight(cohort: Hex32Path, request: rest.RoundRequest, here: Here) -> PreflightView:
    """What would be opened now, and what it would cost; nothing is (operator). What would not be opened is refused as there."""
    return await here.preflight(cohort, request)


@router.get(
    rest.ROUND,
    dependencies=ANYBODY.dependencies,
    response_model=rest.RoundView,
    responses=declared(Cause.NOT_FOUND),
)
async def round_view(found: TheRound, here: Here, after: After = -1, wait_s: Wait = 0.0) -> Response:
    """A round as it stands; with `after` and `wait_s`, as soon as it changes."""
    await here.changed(found.watch, after, wait_s)
    return Response(found.shown.json, media_type="application/json")


@router.get(
    rest.ROUND_EVENTS,
    dependencies=[*ANYBODY.dependencies, Depends(one_stream)],
    response_class=Response,
    responses={
        200: {"description": "events named `round`, each a RoundView", "content": {EVENTS: _EVENTS_SCHEMA}},
        **declared(Cause.NOT_FOUND),
    },
)
async def events(found: TheRound, here: Here) -> StreamingResponse:
    """The round's view at every change, as server-sent events, until it ends; of many changes in a moment, the last."""
    # For nginx, which would keep events back until there are more of them.
    return StreamingResponse(_events(found, here), headers={"x-accel-buffering": "no"}, media_type=EVENTS)


async def _events(found: Round, here: Coordinator) -> AsyncIterator[bytes]:
    version = -1
    while not here.stopping:
        if await found.watch.beyond(version, KEEPALIVE_S) == version:
            yield KEEPALIVE_COMMENT
            continue
        shown = found.shown
        version = shown.version
        yield shown.event
        if shown.view.ended:
            return


@router.get(
    rest.OPENING,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={**octets_out("the signed Opening message"), **declared(Cause.NOT_FOUND)},
)
async def opening(found: TheRound) -> Response:
    """The round's opening, for members who come after it is asked for."""
    return Response(found.attempt.opening.to_bytes(), media_type=rest.OCTETS)


@router.get(
    rest.REQUEST,
    dependencies=MEMBER.dependencies,
    response_class=Response,
    responses={
        **octets_out("the message that the member has to answer now"),
        204: {
            "description": "nothing to answer yet; wait again with `after` from the veilsum-version header"
        },
        **declared(*MEMBER.causes, Cause.UNKNOWN_MEMBER),
    },
)
async def request_for(
    found: TheRound, member: MemberPath, here: Here, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """What the coordinator asks of a member: an opening, boxes, survivors to sign, a certificate; with `after` and `wait_s`, as soon as it asks anything new."""
    found.check_asker(member)
    version = await here.changed(found.watch, after, wait_s, len(found.attempt.roster.members))
    message = await asyncio.to_thread(found.request_for, member)
    headers = {rest.VERSION_HEADER: str(version)}
    if message is None:
        return Response(status_code=204, headers=headers)
    return Response(message, headers=headers, media_type=rest.OCTETS)


@router.get(
    rest.MATERIAL,
    dependencies=MEMBER.dependencies,
    response_class=Response,
    responses={
        **octets_out("arrays that the step takes of the one before it", rest.SAFETENSORS),
        **declared(*MEMBER.causes, Cause.NOT_FOUND),
    },
)
async def material(found: TheRound, here: Here) -> Response:
    """What members need beside the opening, such as the head whose gradients they sum; its SHA-256 stands in the signed terms."""
    content = await here.steps.material(found.attempt)
    if content is None:
        raise not_found("material: the step takes none")
    return Response(content, media_type=rest.SAFETENSORS)


@router.put(
    rest.UPLOAD,
    dependencies=MEMBER.dependencies,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in("an Upload message"),
    responses=declared(
        *MEMBER.causes,
        Cause.WRONG_PHASE,
        Cause.WRONG_CONTEXT,
        Cause.UPLOAD_CONFLICT,
        Cause.CONFLICT,
        *DECODING,
        Cause.UNKNOWN_MEMBER,
        Cause.BAD_SIGNATURE,
        Cause.UPLOAD_MISSHAPEN,
        Cause.NOT_A_DECRYPTOR,
        Cause.REVEAL_MISSHAPEN,
    ),
)
async def announce(found: TheRound, member: MemberPath, body: Octets, here: Here) -> rest.UploadView:
    """Announce an upload: what its chunks will be, signed as a whole. The same again changes nothing."""
    upload = await asyncio.to_thread(Upload.from_bytes, body)
    if upload.header.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the upload")
    await found.receive(upload, here.now())
    return found.upload_view(member)


@router.get(
    rest.UPLOAD,
    dependencies=MEMBER.dependencies,
    responses=declared(*MEMBER.causes, Cause.WRONG_PHASE, Cause.CHUNK_UNKNOWN),
)
async def upload_view(found: TheRound, member: MemberPath) -> rest.UploadView:
    """Which chunks of an announced upload are still to come."""
    return found.upload_view(member)


@router.put(
    rest.CHUNK,
    dependencies=MEMBER.dependencies,
    max_body_size=MAX_CHUNK_BYTES,
    openapi_extra=octets_in("the packed chunk"),
    responses=declared(
        *MEMBER.causes, Cause.WRONG_PHASE, Cause.CHUNK_MISMATCH, Cause.CHUNK_UNKNOWN, Cause.CONFLICT
    ),
)
async def put_chunk(
    found: TheRound,
    member: MemberPath,
    index: IndexPath,
    body: Octets,
    here: Here,
    digest: BodyDigest,
    made: Made,
    request: Request,
) -> rest.UploadView:
    """Send a chunk that was announced, in any order; the same again changes nothing."""
    try:
        await found.store_chunk(member, index, digest, body, here.now())
    except PeerFault as fault:
        if fault.cause is Cause.CONFLICT:
            made.append(signed_headers(request))
        raise
    UPLOAD_BYTES.inc(len(body))
    return found.upload_view(member)


@router.post(
    rest.ANSWERS,
    dependencies=MEMBER.dependencies,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in("a Receipt, Vote, Refusal, Reveal or Erased message"),
    responses=declared(
        *MEMBER.causes,
        Cause.WRONG_PHASE,
        Cause.WRONG_CONTEXT,
        Cause.CONFLICT,
        Cause.ALREADY_VOTED,
        *DECODING,
        Cause.BAD_SIGNATURE,
        Cause.NOT_A_DECRYPTOR,
        Cause.SURVIVORS_INVALID,
        Cause.REVEAL_MISSHAPEN,
        Cause.SHARE_INVALID,
    ),
)
async def answer(found: TheRound, body: Octets, here: Here, caller: TheCaller) -> rest.RoundView:
    """A member's signed answer to what it was asked. The same again changes nothing."""
    message = await asyncio.to_thread(sent.read, body)
    if not isinstance(message, sent.ANSWERS):
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} is no answer to a round's requests"
        )
    if message.member != caller.name:
        raise PeerFault(
            Cause.FORBIDDEN,
            f"this is {message.member}'s answer, and {caller.name} has sent it",
            [caller.name],
        )
    await found.receive(message, here.now())
    return found.view()


@router.post(
    rest.CANCEL,
    dependencies=ROUNDS.dependencies,
    responses=declared(*ROUNDS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
)
async def cancel(found: TheRound, request: rest.CancelRequest, here: Here) -> rest.RoundView:
    """Give a round up (operator): its decryptors are asked to sign VOID."""
    await found.cancel(here.now(), request.reason)
    return found.view()


@router.post(
    rest.EXTEND,
    dependencies=ROUNDS.dependencies,
    responses=declared(
        *ROUNDS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.CONFLICT, Cause.TERMS_REFUSED
    ),
)
async def extend(found: TheRound, request: rest.ExtendRequest, here: Here) -> rest.RoundView:
    """Give the phase that a round is in more time (operator)."""
    await found.extend(here.now(), request.deadline_s)
    return found.view()


@router.post(
    rest.LOST,
    dependencies=CLOSING.dependencies,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in("a Lost message"),
    responses=declared(
        *CLOSING.causes,
        Cause.NOT_FOUND,
        Cause.WRONG_PHASE,
        Cause.WRONG_CONTEXT,
        *DECODING,
        Cause.BAD_SIGNATURE,
        Cause.NOT_A_DECRYPTOR,
        Cause.UNKNOWN_MEMBER,
    ),
)
async def lost(found: TheRound, body: Octets, here: Here) -> rest.RoundView:
    """Close an erasing round that too few decryptors report on (admin, by signature)."""
    await found.receive(await asyncio.to_thread(Lost.from_bytes, body), here.now())
    return found.view()


@router.get(
    rest.CLOSING,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={
        **octets_out("the Certificate, the Erasure, or the admin's Lost"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def closing(context: Hex32Path, here: Here) -> Response:
    """How the attempt of a context was closed, for members who still have to hear of it."""
    return Response((await here.closed(context)).end().to_bytes(), media_type=rest.OCTETS)


@router.get(
    rest.TRANSCRIPT,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={
        **octets_out("the round's signed transcript (protocol §11)", rest.TRANSCRIPT_JSON),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def transcript(found: TheRound) -> Response:
    """What was said in a round that has ended, however it ended, for whoever replays it. It never changes."""
    size, pieces = await asyncio.to_thread(found.documents.read_transcript)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return in_pieces(size, pieces, rest.TRANSCRIPT_JSON, headers)


@router.get(
    rest.RESULT, dependencies=ANYBODY.dependencies, responses=declared(Cause.NOT_FOUND, Cause.WRONG_PHASE)
)
async def result(found: TheRound, response: Response) -> published.ResultRecord:
    """The signed record of a finished round; its `link` header leads to the transcript."""
    where = rest.TRANSCRIPT.format(round_id=found.id)
    response.headers["link"] = f'<{where}>; rel="describedby"; type="{rest.TRANSCRIPT_JSON}"'
    return found.documents.result()


@router.get(
    rest.WEIGHTS,
    dependencies=HEADS.dependencies,
    response_class=Response,
    responses={
        **octets_out("tensors `weights` (l, C) and, with a bias, `bias` (C,)", rest.SAFETENSORS),
        **declared(*HEADS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def weights(found: TheRound) -> Response:
    """The head's weights, float64, as safetensors: for members and operators, or for anyone, as the study says."""
    return await _document(found, HEAD)


@router.get(
    rest.EVICTIONS,
    dependencies=ANYBODY.dependencies,
    response_class=Response,
    responses={
        **octets_out("the Evictions message: a proof for each survivor that the sum is without"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def evictions(found: TheRound) -> Response:
    """The proofs that evicted survivors dealt falsely."""
    return await _document(found, EVICTIONS, rest.OCTETS)


@router.get(
    rest.DISCLOSURE,
    dependencies=MEMBER.dependencies,
    response_class=StreamingResponse,
    responses={
        **octets_out("the Disclosure message: the survivors' chunks and seeds of an indicator round"),
        **declared(*MEMBER.causes, Cause.WRONG_PHASE, Cause.UNKNOWN_MEMBER),
    },
)
async def disclosure(
    found: TheRound,
    member: MemberPath,
) -> StreamingResponse:
    """What an indicator round was made of, for its members to count; until a result rests on it."""
    found.check_asker(member)
    return in_pieces(*await asyncio.to_thread(found.documents.read_document, DISCLOSURE), rest.OCTETS)


@router.get(
    rest.SUMS,
    dependencies=READERS.dependencies,
    response_class=Response,
    responses={
        **octets_out("tensor `sum`, int64, as docs/protocol.md §8 and §9 lay it out", rest.SAFETENSORS),
        **declared(*READERS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def sums(found: TheRound) -> Response:
    """The sum itself, as safetensors (operator, or a member that the roster lists as a reader)."""
    return await _document(found, SUMS)


@router.get(
    rest.DOCUMENT,
    dependencies=MEMBER.dependencies,
    response_class=Response,
    responses={
        **octets_out("arrays, and in the metadata what they do not say", rest.SAFETENSORS),
        **declared(*MEMBER.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def document(found: TheRound, name: NamePath) -> Response:
    """What a round publishes beside its head, by the name that its record gives it."""
    return await _document(found, document_name(name))


async def _document(found: Round, name: str, kind: str = rest.SAFETENSORS) -> Response:
    return in_pieces(*await asyncio.to_thread(found.documents.read_document, name), kind)
