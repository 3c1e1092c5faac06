"""Forms and downloads of signed-in operators. Commands do everything else."""

import csv
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import Annotated
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from pydantic import ValidationError

from service.access.guarded_route import GuardedRoute
from service.access.guards import EVERYONE, gate_of
from service.access.recording import record_action
from service.coordination.documents import HEAD, SUMS
from service.coordination.rounds import Round
from service.http.problems import noted, wrong_phase
from service.pages import session
from service.pages.rendering import HEADERS, page
from service.pages.routes import turned
from service.pages.session import SIGNED_IN_OR_NOT
from service.routes.common import Here, TheRound, in_pieces
from service.storage.audit import Audit, Choice
from veilsum.protocol.audit import PAGE_MAX
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import OCTETS, SAFETENSORS, CancelRequest, Scope

router = APIRouter(
    include_in_schema=False, route_class=GuardedRoute.behind(EVERYONE), dependencies=SIGNED_IN_OR_NOT
)
FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 8192
PAGE_ENTRIES = 50
FORMULA = tuple("=+-@")
MAX_MINUTES = 366 * 24 * 60


async def form(request: Request) -> dict[str, str]:
    """Parse a form; the last field of a name wins. Raises PeerFault(malformed-request) for another body."""
    kind = request.headers.get("content-type", OCTETS).partition(";")[0].strip().lower()
    if kind != FORM:
        raise PeerFault(Cause.MALFORMED_REQUEST, f"send this form as {FORM}, not {kind}")
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the body is not a form") from error
    return {name: values[-1].strip() for name, values in fields.items()}


Form = Annotated[dict[str, str], Depends(form)]


async def operators_form(request: Request, fields: Form) -> dict[str, str]:
    """Accept a form that a signed-in operator sent from our own page. Raises PeerFault(unauthorised)."""
    session.check_form(request, fields.get("form", ""))
    return fields


OperatorsForm = Annotated[dict[str, str], Depends(operators_form)]


async def rounds_form(request: Request, fields: OperatorsForm) -> dict[str, str]:
    """As `operators_form`, for operators with the scope `rounds`. Raises PeerFault(forbidden)."""
    await session.check_scope(request, Scope.ROUNDS)
    return fields


RoundsForm = Annotated[dict[str, str], Depends(rounds_form)]


@router.get("/sign-in")
async def sign_in_page(
    request: Request, then: Annotated[str, Query(pattern="^[ -~]{0,200}$")] = "/"
) -> HTMLResponse:
    return _sign_in(request, inside(then))


@router.post("/sign-in", max_body_size=MAX_FORM_BYTES)
async def sign_in(request: Request, fields: Form) -> Response:
    then = inside(fields.get("then", "/"))
    answer = _see(then)
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
    name = issuer.name if issuer is not None else ""
    return page(request, "sign-in.html", 401 if wrong else 200, then=then, wrong=wrong, issuer=name)


@router.post("/sign-out", max_body_size=MAX_FORM_BYTES, dependencies=[Depends(operators_form)])
async def sign_out(request: Request) -> Response:
    answer = _see("/")
    session.end(request, answer)
    return answer


@router.post("/rounds/{round_id}/cancel", max_body_size=MAX_FORM_BYTES)
async def cancel(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Cancel a round, with a public reason."""
    try:
        reason = CancelRequest(reason=fields.get("reason", "")).reason
    except ValidationError as error:
        raise PeerFault(
            Cause.MALFORMED_REQUEST, "give a reason on one line of at most 500 characters; it is public"
        ) from error
    await found.cancel(here.now(), reason)
    return _see(f"/rounds/{found.id}")


@router.post("/rounds/{round_id}/extend", max_body_size=MAX_FORM_BYTES)
async def extend(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Extend the phase by minutes after its current deadline."""
    minutes, deadline_s = fields.get("minutes", ""), found.view().deadline_s
    if not (
        minutes.isascii() and minutes.isdigit() and len(minutes) < 10 and 0 < int(minutes) <= MAX_MINUTES
    ):
        raise PeerFault(Cause.MALFORMED_REQUEST, f"say by how many minutes, 1 to {MAX_MINUTES}")
    if deadline_s is None:
        raise wrong_phase(f"the round is {found.view().state} and has no deadline")
    await found.extend(here.now(), deadline_s + 60 * int(minutes))
    return _see(f"/rounds/{found.id}")


Text = Annotated[str, Query(alias="text", pattern="^[ -~]{0,200}$")]
Outcome = Annotated[str, Query(alias="outcome", pattern="^(done|refused)?$")]


@router.get("/audit")
async def audit(
    request: Request,
    text: Text = "",
    outcome: Outcome = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1 << 32)] = 1,
) -> HTMLResponse:
    """The audit log, newest first."""
    await session.check_scope(request, Scope.AUDIT)
    log: Audit = request.app.state.audit
    chosen = Choice(text.strip(), outcome)
    total, first = await log.count(chosen), await log.place(chosen, (number - 1) * PAGE_ENTRIES)
    return page(
        request,
        "audit.html",
        entries=await log.matching(chosen, first + 1, PAGE_ENTRIES),
        head=(await log.page(0, 0)).head,
        chosen=chosen,
        total=total,
        query=urlencode({"text": chosen.text, "outcome": chosen.outcome}),
        **turned(number, total, PAGE_ENTRIES),
    )


@router.get("/audit.csv")
async def exported(request: Request, text: Text = "", outcome: Outcome = "") -> StreamingResponse:
    """The chosen entries as CSV, the newest first."""
    await session.check_scope(request, Scope.AUDIT)
    log: Audit = request.app.state.audit
    headers = {**HEADERS, "content-disposition": "attachment; filename=audit.csv"}
    await record_action(request)
    return StreamingResponse(
        _lines(log, Choice(text.strip(), outcome)), media_type="text/csv", headers=headers
    )


async def _lines(log: Audit, chosen: Choice) -> AsyncIterator[str]:
    """A header and a line for each entry; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    yield _line(("number", "time", "who", "action", "on", "outcome", "head"))
    below = await log.place(chosen, 0) + 1
    while entries := await log.matching(chosen, below, PAGE_MAX):
        for each in entries:
            at = datetime.fromtimestamp(each.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
            texts = (each.who, each.action, each.on, each.outcome)
            yield _line(
                (each.number, at, *(f"'{text}" if text[:1] in FORMULA else text for text in texts), each.head)
            )
        below = entries[-1].number


def _line(cells: Iterable[object]) -> str:
    made = StringIO()
    csv.writer(made).writerow(cells)
    return made.getvalue()


@router.get("/rounds/{round_id}/sums")
async def sums(request: Request, found: TheRound) -> Response:
    return await _file(request, found, SUMS, f"sums-{found.id}.safetensors")


@router.get("/rounds/{round_id}/head")
async def head(request: Request, found: TheRound) -> Response:
    return await _file(request, found, HEAD, f"head-{found.id}.safetensors")


async def _file(request: Request, found: Round, document: str, name: str) -> Response:
    await session.check_scope(request, Scope.SUMS)
    headers = {**HEADERS, "content-disposition": f"attachment; filename={name}"}
    answer = await in_pieces(partial(found.documents.read_document, document), SAFETENSORS, headers)
    await record_action(request)
    return answer


def _see(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, HEADERS)


def inside(address: str) -> str:
    """Return the path on this coordinator that a link names; `/` for a link to elsewhere."""
    path, mark, query = address.partition("?")
    if not path.startswith("/") or path[1:2] in {"/", "\\"}:
        return "/"
    return quote(path, safe="/") + mark + query
