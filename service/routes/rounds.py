"""Rounds: opening, uploads, answers, results."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from protocol import published, rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from service import counting, solving
from service.problems import DECODING, declared
from service.rounds import Round
from service.routes.common import (
    After,
    Bearer,
    Here,
    Hex32Path,
    IndexPath,
    MemberPath,
    Octets,
    Operator,
    TheRound,
    Wait,
    octets_in,
    octets_out,
)

router = APIRouter(tags=["rounds"])
MAX_CHUNK_BYTES = 32 << 20


@router.post(
    rest.ROUNDS,
    status_code=201,
    dependencies=[Bearer, Operator],
    responses=declared(
        Cause.UNAUTHORISED,
        Cause.NOT_FOUND,
        Cause.WRONG_PHASE,
        Cause.CONFLICT,
        Cause.CARD_EXPIRED,
        Cause.TERMS_REFUSED,
        Cause.EXCEPTION_REFUSED,
        Cause.LEDGER_REFUSED,
        *DECODING,
        Cause.BAD_SIGNATURE,
    ),
)
async def open_round(cohort: Hex32Path, request: rest.RoundRequest, here: Here) -> rest.RoundView:
    """Open the next round of a formed cohort, or the next attempt of a voided one (operator)."""
    return (await here.open_round(cohort, request)).view()


@router.get(rest.ROUND, responses=declared(Cause.NOT_FOUND))
async def round_view(found: TheRound, here: Here, after: After = -1, wait_s: Wait = 0.0) -> rest.RoundView:
    """A round as it stands; with `after` and `wait_s`, as soon as it changes."""
    await here.changed(found.watch, after, wait_s)
    return found.view()


@router.get(rest.ROUND_EVENTS, response_class=EventSourceResponse, responses=declared(Cause.NOT_FOUND))
async def events(found: TheRound, here: Here) -> AsyncIterator[ServerSentEvent]:
    """The round's view at every change, as server-sent events, until it ends."""
    version = -1
    while not here.stopping:
        seen = await here.changed(found.watch, version, rest.MAX_WAIT_S)
        if seen > version:
            version, view = seen, found.view()
            yield ServerSentEvent(data=view, event="round", id=str(version))
            if view.ended:
                return


@router.get(
    rest.OPENING,
    response_class=Response,
    responses={**octets_out("the signed Opening message"), **declared(Cause.NOT_FOUND)},
)
async def opening(found: TheRound) -> Response:
    """The round's opening, for members who come after it is asked for."""
    return Response(found.attempt.opening.to_bytes(), media_type=rest.OCTETS)


@router.get(
    rest.REQUEST,
    response_class=Response,
    responses={
        **octets_out("the message that the member has to answer now"),
        204: {
            "description": "nothing to answer yet; wait again with `after` from the veilsum-version header"
        },
        **declared(Cause.NOT_FOUND, Cause.UNKNOWN_MEMBER),
    },
)
async def request_for(
    found: TheRound, member: MemberPath, here: Here, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """What the coordinator asks of a member: an opening, boxes, survivors to sign, a certificate."""
    found.mode.check_asker(member)
    version = await here.changed(found.watch, after, wait_s)
    message = await asyncio.to_thread(found.request_for, member)
    headers = {rest.VERSION_HEADER: str(version)}
    if message is None:
        return Response(status_code=204, headers=headers)
    return Response(message, headers=headers, media_type=rest.OCTETS)


@router.put(
    rest.UPLOAD,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in(
        "an Upload message; with helpers a client's HelperUpload, or a helper's HelperSums"
    ),
    responses=declared(
        Cause.NOT_FOUND,
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
    owner, upload = await asyncio.to_thread(found.mode.announcement, body)
    if owner != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the upload")
    await found.receive(upload, here.now())
    return found.upload_view(member)


@router.get(rest.UPLOAD, responses=declared(Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.CHUNK_UNKNOWN))
async def upload_view(found: TheRound, member: MemberPath) -> rest.UploadView:
    """Which chunks of an announced upload are still to come."""
    return found.upload_view(member)


@router.put(
    rest.CHUNK,
    max_body_size=MAX_CHUNK_BYTES,
    openapi_extra=octets_in("the packed chunk"),
    responses=declared(Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.CHUNK_MISMATCH, Cause.CHUNK_UNKNOWN),
)
async def put_chunk(
    found: TheRound,
    member: MemberPath,
    index: IndexPath,
    body: Octets,
    here: Here,
    content_digest: Annotated[str, Header(description="RFC 9530: sha-256=:BASE64:")],
) -> rest.UploadView:
    """Send a chunk that was announced, in any order; the same again changes nothing."""
    digest = await asyncio.to_thread(lambda: hashlib.sha256(body).digest())
    if digest != _sha256_of(content_digest):
        raise PeerFault(
            Cause.CHUNK_MISMATCH, f"chunk {index} arrived with another digest than it was sent with"
        )
    await found.store_chunk(member, index, digest, body, here.now())
    return found.upload_view(member)


@router.post(
    rest.ANSWERS,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in(
        "a Receipt, Vote, Refusal, Reveal or Report message; with helpers a HelperReceipt, HelperVote or HelperRefusal"
    ),
    responses=declared(
        Cause.NOT_FOUND,
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
async def answer(found: TheRound, body: Octets, here: Here) -> rest.RoundView:
    """A member's signed answer to what it was asked. The same again changes nothing."""
    message = await asyncio.to_thread(found.mode.parse, body)
    if not isinstance(message, found.mode.answers):
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} is no answer to a round's requests"
        )
    await found.receive(message, here.now())
    return found.view()


@router.post(
    rest.CANCEL,
    dependencies=[Bearer, Operator],
    responses=declared(Cause.UNAUTHORISED, Cause.NOT_FOUND, Cause.WRONG_PHASE),
)
async def cancel(found: TheRound, request: rest.CancelRequest, here: Here) -> rest.RoundView:
    """Give a round up (operator): its decryptors are asked to sign VOID."""
    await found.cancel(here.now(), request.reason)
    return found.view()


@router.get(
    rest.REPORTS,
    response_class=Response,
    responses={
        **octets_out("a Lost message with the reports so far; its signature, still to be made, is zero"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def reports(found: TheRound) -> Response:
    """What the admin is to sign over a lost round."""
    return Response(found.reports().to_bytes(), media_type=rest.OCTETS)


@router.post(
    rest.LOST,
    max_body_size=rest.MAX_MESSAGE_BYTES,
    openapi_extra=octets_in("a Lost message; with helpers a HelperLost"),
    responses=declared(
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
    """Close a lost round (admin, by signature): every set reported counts as opened."""
    await found.receive(await asyncio.to_thread(found.mode.lost, body), here.now())
    return found.view()


@router.get(
    rest.CLOSING,
    response_class=Response,
    responses={
        **octets_out("the Certificate, or the admin's Lost"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def closing(context: Hex32Path, here: Here) -> Response:
    """How the attempt of a context was closed, for members who still have to hear of it."""
    return Response(here.closed(context).end().to_bytes(), media_type=rest.OCTETS)


@router.get(
    rest.TRANSCRIPT,
    response_class=Response,
    responses={
        **octets_out("the round's signed transcript (protocol §11)", rest.TRANSCRIPT_JSON),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def transcript(found: TheRound) -> Response:
    """What was said in a round that has ended, however it ended, for whoever replays it. It never changes."""
    content = await asyncio.to_thread(found.transcript)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=rest.TRANSCRIPT_JSON)


@router.get(rest.RESULT, responses=declared(Cause.NOT_FOUND, Cause.WRONG_PHASE))
async def result(found: TheRound, response: Response) -> published.ResultRecord:
    """The signed record of a finished round; where it names a transcript, its `link` header leads there."""
    record = found.result()
    if record.transcript is not None:
        where = rest.TRANSCRIPT.format(round_id=found.id)
        response.headers["link"] = f'<{where}>; rel="describedby"; type="{rest.TRANSCRIPT_JSON}"'
    return record


@router.get(
    rest.WEIGHTS,
    response_class=Response,
    responses={
        **octets_out("tensors `weights` (l, C) and, with a bias, `bias` (C,)", rest.SAFETENSORS),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def weights(found: TheRound) -> Response:
    """The head's weights, float64, as safetensors."""
    return await _document(found, solving.WEIGHTS)


@router.get(
    rest.EVICTIONS,
    response_class=Response,
    responses={
        **octets_out("the Evictions message: a proof for each survivor that the sum is without"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def evictions(found: TheRound) -> Response:
    """The proofs that evicted survivors dealt falsely."""
    return await _document(found, solving.EVICTIONS, rest.OCTETS)


@router.get(
    rest.DISCLOSURE,
    response_class=FileResponse,
    responses={
        **octets_out("the Disclosure message: the survivors' chunks and seeds of an indicator round"),
        **declared(Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.UNKNOWN_MEMBER, Cause.BAD_SIGNATURE),
    },
)
async def disclosure(
    found: TheRound,
    member: MemberPath,
    veilsum_signature: Annotated[
        str,
        Header(
            description="the member's Ed25519 signature over H(disclosure, context, member)",
            pattern=r"^[0-9a-f]{128}$",
        ),
    ],
) -> FileResponse:
    """What an indicator round was made of, for its members to count; until a result rests on it."""
    counting.check_asker(found, member, veilsum_signature)
    path = await asyncio.to_thread(found.document_path, counting.DISCLOSURE)
    return FileResponse(path, media_type=rest.OCTETS)


@router.get(
    rest.SUMS,
    response_class=Response,
    dependencies=[Bearer, Operator],
    responses={
        **octets_out("tensor `sum`, int64, in the terms' layout and lattice", rest.SAFETENSORS),
        **declared(Cause.UNAUTHORISED, Cause.NOT_FOUND, Cause.WRONG_PHASE),
    },
)
async def sums(found: TheRound) -> Response:
    """The sum itself, as safetensors (operator)."""
    return await _document(found, solving.SUMS)


async def _document(found: Round, name: str, kind: str = rest.SAFETENSORS) -> Response:
    return Response(await asyncio.to_thread(found.document, name), media_type=kind)


def _sha256_of(header: str) -> bytes:
    """The digest in a Content-Digest header; PeerFault(malformed-request) where there is none."""
    for item in header.split(","):
        name, _, value = item.strip().partition("=")
        if name == "sha-256" and len(value) > 2 and value[0] == value[-1] == ":":
            try:
                return base64.b64decode(value[1:-1], validate=True)
            except ValueError:
                break
    raise PeerFault(Cause.MALFORMED_REQUEST, "content-digest must hold sha-256=:BASE64: (RFC 9530)")
