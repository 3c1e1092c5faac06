"""Rounds: opening, uploads, answers, results."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT

from service.access.gate import headers_signed
from service.access.guards import (
    CLOSING_GUARD,
    DOCUMENTS_GUARD,
    EVERYONE_GUARD,
    HEADS_GUARD,
    MEMBER_GUARD,
    READERS_GUARD,
    ROUNDS_GUARD,
    gate_of,
)
from service.access.recording import record_action
from service.coordination.coordinator import Coordinator
from service.coordination.documents import (
    DISCLOSURE_DOCUMENT,
    EVICTIONS_DOCUMENT,
    HEAD_DOCUMENT,
    SUMS_DOCUMENT,
    document_name,
)
from service.coordination.events import read_message
from service.coordination.rounds import Round
from service.http.callers import Caller
from service.http.metering import in_thread
from service.http.problems import DECODING_CAUSES, not_found
from service.routes.common import (
    After,
    FederationQuery,
    Here,
    Hex32Path,
    IndexPath,
    Later,
    Made,
    MemberPath,
    Octets,
    Routes,
    TheCaller,
    TheRound,
    Wait,
    in_pieces,
    one_stream,
)
from service.routes.federations import WEIGHTS_DESCRIPTION
from service.routes.published import answer_published, shown_as
from service.telemetry.metrics import UPLOAD_BYTES
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.coordinator.statements import Answer
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Lost, Reveal, Upload
from veilsum.protocol.messages.outcome import MAX_CHUNK_BYTES
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import PreflightView

serve = Routes("rounds")
EVENTS_TYPE = "text/event-stream"
_EVENTS_SCHEMA = {
    "itemSchema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    }
}
INLINE_READ_BYTES = 4096
"""Longest answer that is parsed on the event loop: handing it to a thread costs more."""
KEEPALIVE_S = 15.0
"""Seconds between keep-alive comments: proxies close a silent stream."""
_OPENING_REFUSALS = (
    Cause.NOT_FOUND,
    Cause.WRONG_PHASE,
    Cause.CONFLICT,
    Cause.ALREADY_SUMMED,
    Cause.ROSTER_ROLLBACK,
    Cause.STUDY_REFUSED,
    Cause.TERMS_REFUSED,
    Cause.COUNT_MISMATCH,
    Cause.REPEAT_MISMATCH,
    Cause.WEAK_PARAMETERS,
)
"""Causes for refusing to open a round."""
END_REFUSALS = (Cause.NOT_FOUND, Cause.WRONG_PHASE)
"""Causes for refusing to show an end."""
NEXT_DESCRIPTION = "the message that the member has to answer now"
NOTHING_YET: Mapping[int | str, dict[str, Any]] = {
    204: {"description": "nothing to answer yet; wait again with `after` from the veilsum-version header"}
}


def answer_when_asked(
    found: Round,
    caller: Caller,
    here: Coordinator,
    after: int,
    wait_s: float,
    ended: Callable[[], Awaitable[Response]] | None = None,
) -> Later:
    """Wait until a member is asked anything new since `after`, and return the request; for a round with a result, return `ended` if given."""
    member = caller.name

    async def answer_now() -> Response:
        if caller.superseded:
            headers = {rest.VERSION_HEADER: str(found.position.version), rest.STATE_HEADER: found.state}
            return Response(status_code=204, headers=headers)
        await here.polls.wait_request(found.watch, after, wait_s)
        headers = {rest.VERSION_HEADER: str(found.position.version), rest.STATE_HEADER: found.state}
        if found.state == Collecting.name:  # who is shown an opening looks for a newer roster first
            headers[rest.ROSTER_HEADER] = str((await here.federations.read_roster(found.federation)).number)
        if ended is not None and found.end is not None and found.end.record is not None:
            response = await ended()
            response.headers.update(headers)
            return response
        message = await in_thread(found.request_for, member)
        if message is None:
            return Response(status_code=204, headers=headers)
        if isinstance(message, bytes):
            return Response(message, headers=headers, media_type=rest.OCTETS_TYPE)
        return StreamingResponse(message, headers=headers, media_type=rest.OCTETS_TYPE)

    return Later(answer_now)


@serve(
    "PUT",
    rest.HEADS_PATH,
    ROUNDS_GUARD,
    Cause.NOT_FOUND,
    Cause.TERMS_REFUSED,
    takes="the heads, a safetensors file",
    status_code=204,
    max_body_size=rest.MAX_HEADS_BYTES,
)
async def put_heads(cohort: Hex32Path, heads: Hex32Path, body: Octets, here: Here) -> None:
    """Store the heads that a judgement of this cohort will show (operator). Repeating the request changes nothing."""
    await here.store_heads(cohort, heads, body)


@serve("POST", rest.ROUNDS_PATH, ROUNDS_GUARD, *_OPENING_REFUSALS, status_code=201)
async def open_round(cohort: Hex32Path, request: rest.RoundRequest, here: Here, made: Made) -> rest.RoundView:
    """Open the next step of a cohort's run, or the next attempt at one that ended VOID (operator)."""
    view = (await here.open_round(cohort, request)).current_view()
    made.append(f"round_id={view.round} context={view.context}")
    return view


@serve("POST", rest.PREFLIGHT_PATH, ROUNDS_GUARD, *_OPENING_REFUSALS)
async def preflight(cohort: Hex32Path, request: rest.RoundRequest, here: Here) -> PreflightView:
    """Show what would be opened now, and its cost, without opening it (operator). Refuses what opening would refuse."""
    return await here.preflight_round(cohort, request)


@serve.serve_published(rest.ROUND_PATH, Cause.NOT_FOUND, response_model=rest.RoundView)
async def round_view(
    found: TheRound, here: Here, request: Request, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """A round. With `after` and `wait_s`, waits for a change."""
    await here.polls.wait_change(found.watch, after, wait_s)
    now = found.position
    version = now.view_version, now.stall is not None
    return await answer_published(request, version, lambda: now.json)


@serve(
    "GET",
    rest.ROUND_EVENTS_PATH,
    EVERYONE_GUARD,
    Cause.NOT_FOUND,
    needs=(one_stream,),
    response_class=Response,
    answers={
        200: {
            "description": "events named `round`, each a RoundView",
            "content": {EVENTS_TYPE: _EVENTS_SCHEMA},
        }
    },
)
async def events(found: TheRound, here: Here) -> StreamingResponse:
    """The round's view at each change, as server-sent events, until it ends. Of several changes at once, only the last is sent."""
    # For nginx, which would keep events back until there are more of them.
    return StreamingResponse(
        _round_events(found, here), headers={"x-accel-buffering": "no"}, media_type=EVENTS_TYPE
    )


async def _round_events(found: Round, here: Coordinator) -> AsyncIterator[bytes]:
    version = -1
    while not here.polls.stopping:
        if await found.watch.wait_beyond(version, KEEPALIVE_S) == version:
            yield KEEPALIVE_COMMENT
            continue
        now = found.position
        version = now.view_version
        yield now.event
        if now.view.ended:
            return


@serve.serve_published(rest.OPENING_PATH, Cause.NOT_FOUND, gives="the signed Opening message")
async def opening_message(found: TheRound, request: Request) -> Response:
    """The round's opening, for members that join late."""
    return await answer_published(
        request, 0, lambda: in_thread(found.attempt.opening.to_bytes), rest.OCTETS_TYPE
    )


@serve(
    "GET", rest.REQUEST_PATH, MEMBER_GUARD, Cause.UNKNOWN_MEMBER, gives=NEXT_DESCRIPTION, answers=NOTHING_YET
)
async def request_for(
    found: TheRound, member: MemberPath, here: Here, caller: TheCaller, after: After = -1, wait_s: Wait = 0.0
) -> Response:
    """The coordinator's request to a member: an opening, boxes, survivors to sign, or a certificate. With `after` and `wait_s`, waits for a new request."""
    found.check_asker(member)
    return answer_when_asked(found, caller, here, after, wait_s)


@serve(
    "GET",
    rest.MATERIAL_PATH,
    DOCUMENTS_GUARD,
    Cause.NOT_FOUND,
    gives="arrays that the step takes of the one before it",
    kind=rest.SAFETENSORS_TYPE,
)
async def material(found: TheRound, here: Here) -> Response:
    """The step's input from earlier steps, such as the head for gradients. The signed terms name its SHA-256."""
    content = await here.catalogue.material_of(found.attempt)
    if content is None:
        raise not_found("material: the step takes none")
    return Response(content, media_type=rest.SAFETENSORS_TYPE)


@serve(
    "PUT",
    rest.UPLOAD_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.WRONG_CONTEXT,
    Cause.UPLOAD_CONFLICT,
    Cause.CONFLICT,
    *DECODING_CAUSES,
    Cause.UNKNOWN_MEMBER,
    Cause.BAD_SIGNATURE,
    Cause.UPLOAD_MISSHAPEN,
    Cause.NOT_A_DECRYPTOR,
    Cause.REVEAL_MISSHAPEN,
    takes="an Upload message",
    max_body_size=rest.MAX_MESSAGE_BYTES,
)
async def announce(found: TheRound, member: MemberPath, body: Octets, here: Here) -> rest.UploadView:
    """Announce an upload: the digests of its chunks, signed as a whole. Repeating the request changes nothing."""
    upload = await in_thread(Upload.from_bytes, body)
    if upload.header.member != member:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another member than the upload")
    await found.receive(upload, here.now())
    return found.upload_view(member)


@serve("GET", rest.UPLOAD_PATH, MEMBER_GUARD, Cause.WRONG_PHASE, Cause.CHUNK_UNKNOWN)
async def upload_view(found: TheRound, member: MemberPath) -> rest.UploadView:
    """The missing chunks of an announced upload."""
    return found.upload_view(member)


@serve(
    "PUT",
    rest.CHUNK_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.CHUNK_MISMATCH,
    Cause.CHUNK_UNKNOWN,
    Cause.CONFLICT,
    takes="the packed chunk",
    gives=NEXT_DESCRIPTION,
    answers=NOTHING_YET,
    max_body_size=MAX_CHUNK_BYTES,
)
async def put_chunk(
    found: TheRound,
    member: MemberPath,
    index: IndexPath,
    body: Octets,
    here: Here,
    made: Made,
    caller: TheCaller,
    request: Request,
    after: After = -1,
    wait_s: Wait = 0.0,
) -> Response:
    """Upload an announced chunk, in any order. Answers with the member's next request. Repeating the request changes nothing."""
    try:
        await found.store_chunk(member, index, request.state.digest, body, here.now())
    except PeerFault as fault:
        if fault.cause is Cause.CONFLICT:  # the log shows the signer of the other bytes (docs/access.md)
            made.append(headers_signed(request, gate_of(request).find_target(request)))
        raise
    UPLOAD_BYTES.inc(len(body))
    return answer_when_asked(found, caller, here, after, wait_s)


@serve(
    "POST",
    rest.ANSWERS_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.WRONG_CONTEXT,
    Cause.CONFLICT,
    Cause.ALREADY_VOTED,
    *DECODING_CAUSES,
    Cause.BAD_SIGNATURE,
    Cause.NOT_A_DECRYPTOR,
    Cause.SURVIVORS_INVALID,
    Cause.REVEAL_MISSHAPEN,
    Cause.SHARE_INVALID,
    takes="a Receipt, Vote, Refusal, Reveal or Erased message",
    gives=f"{NEXT_DESCRIPTION}; to a Reveal, the result's record once there is one",
    answers={200: {"model": ResultRecord}, **NOTHING_YET},
    max_body_size=rest.MAX_MESSAGE_BYTES,
)
async def answer(
    found: TheRound,
    body: Octets,
    here: Here,
    caller: TheCaller,
    request: Request,
    after: After = -1,
    wait_s: Wait = 0.0,
) -> Response:
    """Send a member's signed answer to a request. Answers with its next request. Repeating the request changes nothing.

    A reveal is answered with the result's record once there is one.
    """
    message = read_message(body) if len(body) <= INLINE_READ_BYTES else await in_thread(read_message, body)
    if not isinstance(message, Answer):
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} does not answer any request of a round"
        )
    if message.member != caller.name:
        raise PeerFault(
            Cause.FORBIDDEN,
            f"this is {message.member}'s answer, and {caller.name} has sent it",
            [caller.name],
        )
    await found.receive(message, here.now())
    path = rest.RESULT_PATH.format(round_id=found.id)

    async def result_record() -> Response:
        return await shown_as(request, path, 0, found.documents.require_record)

    ended = result_record if isinstance(message, Reveal) else None
    return answer_when_asked(found, caller, here, after, wait_s, ended)


@serve("POST", rest.CANCEL_PATH, ROUNDS_GUARD, *END_REFUSALS)
async def cancel(found: TheRound, request: rest.CancelRequest, here: Here) -> rest.RoundView:
    """Cancel a round (operator): its decryptors are asked to sign VOID."""
    await found.cancel(here.now(), request.reason)
    return found.current_view()


@serve(
    "POST",
    rest.EXTEND_PATH,
    ROUNDS_GUARD,
    Cause.NOT_FOUND,
    Cause.WRONG_PHASE,
    Cause.CONFLICT,
    Cause.TERMS_REFUSED,
)
async def extend(found: TheRound, request: rest.ExtendRequest, here: Here) -> rest.RoundView:
    """Extend the deadline of a round's current phase (operator)."""
    await found.extend_deadline(here.now(), request.deadline_s)
    return found.current_view()


@serve(
    "POST",
    rest.LOST_PATH,
    CLOSING_GUARD,
    Cause.NOT_FOUND,
    Cause.WRONG_PHASE,
    Cause.WRONG_CONTEXT,
    *DECODING_CAUSES,
    Cause.BAD_SIGNATURE,
    Cause.NOT_A_DECRYPTOR,
    Cause.UNKNOWN_MEMBER,
    takes="a Lost message",
    max_body_size=rest.MAX_MESSAGE_BYTES,
)
async def put_lost(found: TheRound, body: Octets, here: Here) -> rest.RoundView:
    """Close an erasing round on which too few decryptors have reported (admin, by signature)."""
    await found.receive(await in_thread(Lost.from_bytes, body), here.now())
    return found.current_view()


@serve.serve_published(
    rest.CLOSING_PATH, *END_REFUSALS, gives="the Certificate, the Erasure, or the admin's Lost"
)
async def closing_message(
    context: Hex32Path, here: Here, request: Request, federation: FederationQuery = None
) -> Response:
    """How a context's attempt was closed, for members that missed its end.

    With `federation`, also the Lost that its admin signed of an attempt that this coordinator does not know.
    """
    lost = None if federation is None else await here.federations.read_lost(federation, context)
    if lost is not None:
        return await answer_published(request, federation, lambda: lost, rest.OCTETS_TYPE)
    found = await here.catalogue.round_of(context)
    return await answer_published(request, 0, found.closing.to_bytes, rest.OCTETS_TYPE)


@serve(
    "GET",
    rest.TRANSCRIPT_PATH,
    EVERYONE_GUARD,
    *END_REFUSALS,
    gives="the round's signed transcript (docs/protocol/analysis.md)",
    kind=rest.TRANSCRIPT_TYPE,
)
async def transcript(found: TheRound) -> Response:
    """The transcript of an ended round, for replay. It never changes."""
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return await in_pieces(found.documents.read_transcript, rest.TRANSCRIPT_TYPE, headers)


@serve.serve_published(rest.RESULT_PATH, *END_REFUSALS, response_model=ResultRecord)
async def result(found: TheRound, request: Request) -> Response:
    """The signed record of a finished round; its `link` header leads to the transcript."""
    answer = await answer_published(request, 0, found.documents.require_record)
    where = rest.TRANSCRIPT_PATH.format(round_id=found.id)
    answer.headers["link"] = f'<{where}>; rel="describedby"; type="{rest.TRANSCRIPT_TYPE}"'
    return answer


@serve(
    "GET",
    rest.WEIGHTS_PATH,
    HEADS_GUARD,
    *END_REFUSALS,
    gives=WEIGHTS_DESCRIPTION,
    kind=rest.SAFETENSORS_TYPE,
)
async def weights(found: TheRound) -> Response:
    """The head's weights, float64, as safetensors: for members and operators, or for anyone, as the study says."""
    return await _document_response(found, HEAD_DOCUMENT)


@serve(
    "GET",
    rest.EVICTIONS_PATH,
    EVERYONE_GUARD,
    *END_REFUSALS,
    gives="the Evictions message: a proof for each survivor that the sum is without",
)
async def evictions(found: TheRound) -> Response:
    """The proofs that evicted survivors dealt falsely."""
    return await _document_response(found, EVICTIONS_DOCUMENT, rest.OCTETS_TYPE)


@serve(
    "GET",
    rest.DISCLOSURE_PATH,
    MEMBER_GUARD,
    Cause.WRONG_PHASE,
    Cause.UNKNOWN_MEMBER,
    gives="the Disclosure message: the survivors' chunks and seeds of a count",
)
async def disclosure(found: TheRound, member: MemberPath) -> Response:
    """A count's disclosure, from which its members recount it; available until a result rests on it."""
    found.check_asker(member)
    return await _document_response(found, DISCLOSURE_DOCUMENT, rest.OCTETS_TYPE)


@serve(
    "GET",
    rest.SUMS_PATH,
    READERS_GUARD,
    *END_REFUSALS,
    gives="tensor `sum`, int64, as docs/protocol/member.md lays it out",
    kind=rest.SAFETENSORS_TYPE,
)
async def sums(request: Request, found: TheRound) -> Response:
    """The sum itself, as safetensors (operator, or a member that the roster lists as a reader). The audit log names the caller."""
    answer = await _document_response(found, SUMS_DOCUMENT)
    await record_action(request)
    return answer


@serve(
    "GET",
    rest.DOCUMENT_PATH,
    DOCUMENTS_GUARD,
    *END_REFUSALS,
    gives="arrays, and in the metadata what they do not say",
    kind=rest.SAFETENSORS_TYPE,
)
async def document(found: TheRound, name: MemberPath) -> Response:
    """A document published with a round's head, or a judgement's tables, by its name in the record: for members and operators."""
    return await _document_response(found, document_name(name))


async def _document_response(found: Round, name: str, kind: str = rest.SAFETENSORS_TYPE) -> Response:
    return await in_pieces(partial(found.documents.read_document, name), kind)
