"""Forms and downloads of signed-in operators. Commands do everything else."""

from functools import partial
from typing import Annotated
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from service.access.guarded_route import GuardedRoute
from service.access.guards import EVERYONE_GUARD, gate_of
from service.access.recording import record_action
from service.coordination.documents import HEAD_DOCUMENT, SUMS_DOCUMENT
from service.coordination.rounds import Round
from service.http.problems import note_refusal, wrong_phase
from service.pages import session
from service.pages.rendering import PAGE_HEADERS, render_page
from service.pages.routes import page_numbers
from service.pages.session import SIGNED_IN_OR_NOT
from service.routes.common import Here, TheRound, check_media_type, in_pieces
from service.storage.audit import Audit, Choice
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import SAFETENSORS_TYPE, CancelRequest, Scope

router = APIRouter(
    include_in_schema=False,
    route_class=GuardedRoute.behind_guard(EVERYONE_GUARD),
    dependencies=SIGNED_IN_OR_NOT,
)
FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 8192
PAGE_ENTRIES = 50
EXTENSION_MAX_MINUTES = 366 * 24 * 60


async def parse_form(request: Request) -> dict[str, str]:
    """Parse a form; the last field of a name wins. Raises PeerFault(malformed-request) for another body."""
    check_media_type(request, FORM_TYPE)
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the body is not a form") from error
    return {name: values[-1].strip() for name, values in fields.items()}


Form = Annotated[dict[str, str], Depends(parse_form)]


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
    return _sign_in(request, path_inside(then))


@router.post("/sign-in", max_body_size=MAX_FORM_BYTES)
async def sign_in(request: Request, fields: Form) -> Response:
    then = path_inside(fields.get("then", "/"))
    answer = _redirect_to(then)
    session.check_origin(request)
    try:
        await session.begin_session(request, answer, fields.get("token", ""))
    except PeerFault as fault:
        if fault.cause is not Cause.UNAUTHORISED:
            raise
        note_refusal(fault)
        return _sign_in(request, then, wrong=fault.detail)
    return answer


def _sign_in(request: Request, then: str, wrong: str = "") -> HTMLResponse:
    issuer = gate_of(request).issuer
    name = issuer.name if issuer is not None else ""
    return render_page(request, "sign-in.html", 401 if wrong else 200, then=then, wrong=wrong, issuer=name)


@router.post("/sign-out", max_body_size=MAX_FORM_BYTES, dependencies=[Depends(operators_form)])
async def sign_out(request: Request) -> Response:
    answer = _redirect_to("/")
    session.end_session(request, answer)
    return answer


@router.post("/rounds/{round_id}/cancel", max_body_size=MAX_FORM_BYTES)
async def cancel_round(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Cancel a round, with a public reason."""
    try:
        reason = CancelRequest(reason=fields.get("reason", "")).reason
    except ValidationError as error:
        raise PeerFault(
            Cause.MALFORMED_REQUEST, "give a reason on one line of at most 500 characters; it is public"
        ) from error
    await found.cancel(here.now(), reason)
    return _redirect_to(f"/rounds/{found.id}")


@router.post("/rounds/{round_id}/extend", max_body_size=MAX_FORM_BYTES)
async def extend_round(found: TheRound, fields: RoundsForm, here: Here) -> Response:
    """Extend the phase by minutes after its current deadline."""
    minutes, deadline_s = fields.get("minutes", ""), found.current_view().deadline_s
    if not (
        minutes.isascii()
        and minutes.isdigit()
        and len(minutes) < 10
        and 0 < int(minutes) <= EXTENSION_MAX_MINUTES
    ):
        raise PeerFault(Cause.MALFORMED_REQUEST, f"say by how many minutes, 1 to {EXTENSION_MAX_MINUTES}")
    if deadline_s is None:
        raise wrong_phase(f"the round is {found.current_view().state} and has no deadline")
    await found.extend_deadline(here.now(), deadline_s + 60 * int(minutes))
    return _redirect_to(f"/rounds/{found.id}")


Text = Annotated[str, Query(alias="text", pattern="^[ -~]{0,200}$")]
Outcome = Annotated[str, Query(alias="outcome", pattern="^(done|refused)?$")]


@router.get("/audit")
async def show_audit(
    request: Request,
    text: Text = "",
    outcome: Outcome = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1 << 32)] = 1,
) -> HTMLResponse:
    """The audit log, newest first."""
    await session.check_scope(request, Scope.AUDIT)
    log: Audit = request.app.state.audit
    chosen = Choice(text.strip(), outcome)
    total = await log.count_entries(chosen)
    return render_page(
        request,
        "audit.html",
        entries=await log.matching_entries(chosen, (number - 1) * PAGE_ENTRIES, PAGE_ENTRIES),
        head=(await log.read_page(0, 0)).head,
        chosen=chosen,
        total=total,
        query=urlencode({"text": chosen.text, "outcome": chosen.outcome}),
        **page_numbers(number, total, PAGE_ENTRIES),
    )


@router.get("/rounds/{round_id}/sums")
async def download_sums(request: Request, found: TheRound) -> Response:
    return await _download_file(request, found, SUMS_DOCUMENT, f"sums-{found.id}.safetensors")


@router.get("/rounds/{round_id}/head")
async def download_head(request: Request, found: TheRound) -> Response:
    return await _download_file(request, found, HEAD_DOCUMENT, f"head-{found.id}.safetensors")


async def _download_file(request: Request, found: Round, document: str, name: str) -> Response:
    await session.check_scope(request, Scope.SUMS)
    headers = {**PAGE_HEADERS, "content-disposition": f"attachment; filename={name}"}
    answer = await in_pieces(partial(found.documents.read_document, document), SAFETENSORS_TYPE, headers)
    await record_action(request)
    return answer


def _redirect_to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, PAGE_HEADERS)


def path_inside(address: str) -> str:
    """Return the path on this coordinator that a link names; `/` for a link to elsewhere."""
    path, mark, query = address.partition("?")
    if not path.startswith("/") or path[1:2] in {"/", "\\"}:
        return "/"
    return quote(path, safe="/") + mark + query
