"""What a signed-in operator does by a form; everything else is done by the command line."""

import asyncio
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from protocol.access import Scope
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import OCTETS, SAFETENSORS, CancelRequest
from service.access.guards import GuardedRoute, gate_of
from service.audit import Audit
from service.documents import HEAD, SUMS
from service.pages import paths, session
from service.pages.rendering import HEADERS, page
from service.pages.session import SIGNED_IN_OR_NOT
from service.problems import noted, wrong_phase
from service.rounds import Round
from service.routes.common import Here, TheRound, in_pieces

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, dependencies=SIGNED_IN_OR_NOT)
FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 8192
PAGE_ENTRIES = 100
MAX_MINUTES = 366 * 24 * 60
SEE_OTHER = 303


async def form(request: Request) -> dict[str, str]:
    """A form's fields, each once; PeerFault(malformed-request) where the body is none."""
    kind = request.headers.get("content-type", OCTETS).partition(";")[0].strip().lower()
    if kind != FORM:
        raise PeerFault(Cause.MALFORMED_REQUEST, f"send this form as {FORM}, not {kind}")
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the body is no form") from error
    return {name: values[-1].strip() for name, values in fields.items()}


Form = Annotated[dict[str, str], Depends(form)]


async def operators_form(request: Request, fields: Form) -> dict[str, str]:
    """A form that a signed-in operator sent from our own page; PeerFault(unauthorised)."""
    session.check_form(request, fields.get("form", ""))
    return fields


OperatorsForm = Annotated[dict[str, str], Depends(operators_form)]


async def rounds_form(request: Request, fields: OperatorsForm) -> dict[str, str]:
    """The same, of an operator who may do this to rounds; PeerFault(forbidden) of another."""
    session.check_scope(request, Scope.ROUNDS)
    return fields


RoundsForm = Annotated[dict[str, str], Depends(rounds_form)]


@router.get(paths.SIGN_IN)
async def sign_in_page(request: Request, then: Annotated[str, Query(max_length=200)] = "/") -> HTMLResponse:
    """The form for the operator's token."""
    return _sign_in(request, inside(then))


@router.post(paths.SIGN_IN, max_body_size=MAX_FORM_BYTES)
async def sign_in(request: Request, fields: Form) -> Response:
    """The token for a cookie."""
    then = inside(fields.get("then", "/"))
    answer = RedirectResponse(then, SEE_OTHER, HEADERS)
    session.check_origin(request)
    try:
        await session.begin(request, answer, fields.get("token", ""))
    except PeerFault as fault:
        if fault.cause is not Cause.UNAUTHORISED:
            raise
        noted(fault)
        return _sign_in(request, then, wrong=fault.detail)
    return answer


def _sign_in(request: Request, then: str, wrong: str = "") -> HTMLResponse:
    issuer = gate_of(request).issuer
    context = {"then": then, "wrong": wrong, "issuer": issuer.name if issuer is not None else ""}
    return page(request, "sign-in.html", context, 401 if wrong else 200)


@router.post(paths.SIGN_OUT, max_body_size=MAX_FORM_BYTES)
async def sign_out(request: Request, fields: OperatorsForm) -> Response:
    """The cookie is taken back."""
    del fields
    answer = RedirectResponse(paths.ROUNDS, SEE_OTHER, HEADERS)
    session.end(request, answer)
    return answer


@router.post(paths.CANCEL, max_body_size=MAX_FORM_BYTES)
async def cancel(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Give a round up, with a reason that everybody sees."""
    reason = fields.get("reason", "")
    if not 0 < len(reason) <= 500:
        raise PeerFault(Cause.MALFORMED_REQUEST, "say why, in 500 characters at most: everybody sees it")
    await found.cancel(here.now(), CancelRequest(reason=reason).reason)
    return RedirectResponse(paths.ROUND.format(round_id=found.id), SEE_OTHER, HEADERS)


@router.post(paths.EXTEND, max_body_size=MAX_FORM_BYTES)
async def extend(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Give the phase more time, counted from its present deadline."""
    minutes, deadline_s = fields.get("minutes", ""), found.deadline_s
    if not (
        minutes.isascii() and minutes.isdigit() and len(minutes) < 10 and 0 < int(minutes) <= MAX_MINUTES
    ):
        raise PeerFault(Cause.MALFORMED_REQUEST, f"say by how many minutes, 1 to {MAX_MINUTES}")
    if deadline_s is None:
        raise wrong_phase(f"the round is {found.view().state} and waits for no time")
    await found.extend(here.now(), deadline_s + 60 * int(minutes))
    return RedirectResponse(paths.ROUND.format(round_id=found.id), SEE_OTHER, HEADERS)


@router.get(paths.AUDIT)
async def audit(
    request: Request, number: Annotated[int, Query(alias="page", ge=1, le=1 << 32)] = 1
) -> HTMLResponse:
    """Who did what, the newest first: for whom the REST route gives it to."""
    session.check_scope(request, Scope.READ)
    log: Audit = request.app.state.audit
    last = (await log.page(0, 0)).head.number
    until = max(0, last - (number - 1) * PAGE_ENTRIES)
    after = max(0, until - PAGE_ENTRIES)
    shown = await log.page(after, until - after)
    pages = -(-last // PAGE_ENTRIES)
    context = {"entries": shown.entries[::-1], "head": shown.head, "number": number, "pages": pages}
    return page(request, "audit.html", context)


@router.get(paths.SUMS)
async def sums(request: Request, found: TheRound) -> Response:
    """The sum itself, as the REST route gives it to whoever has the token."""
    return await _file(request, found, SUMS, f"sums-{found.id}.safetensors")


@router.get(paths.HEAD)
async def head(request: Request, found: TheRound) -> Response:
    """The head, as the REST route gives it to whoever has the token."""
    return await _file(request, found, HEAD, f"head-{found.id}.safetensors")


async def _file(request: Request, found: Round, document: str, name: str) -> Response:
    session.check_scope(request, Scope.READ)
    headers = {**HEADERS, "content-disposition": f"attachment; filename={name}"}
    return in_pieces(*await asyncio.to_thread(found.documents.read_document, document), SAFETENSORS, headers)


def inside(address: str) -> str:
    """A path of this coordinator's own, whatever a link asked for."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address[1:2] in {"/", "\\"}:
        return "/"
    return quote(parts.path, safe="/") + (f"?{parts.query}" if parts.query else "")
