"""Operators' tokens, the audit log, and health probes."""

import asyncio
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.access.guards import ADMIN_GUARD, AUDIT_GUARD, EVERYONE_GUARD, MACHINES_GUARD
from service.access.tokens import Tokens
from service.coordination.readiness import Readiness
from service.routes.common import Here, Made, Routes, TheCaller
from service.storage.audit import Audit
from service.telemetry import metrics
from veilsum.protocol import rest
from veilsum.protocol.audit import PAGE_MAX, AuditPage
from veilsum.protocol.causes import Cause
from veilsum.protocol.forms import SHORT_ID_PATTERN
from veilsum.protocol.rest import NewToken, TokenList, TokenRequest, TokenView

tokens, log, health = Routes("tokens"), Routes("audit"), Routes("health")


async def tokens_of(request: Request) -> Tokens:
    found: Tokens = request.app.state.tokens
    return found


TheTokens = Annotated[Tokens, Depends(tokens_of)]


@tokens("POST", rest.TOKENS_PATH, ADMIN_GUARD, status_code=201)
async def create(request: TokenRequest, tokens: TheTokens, made: Made) -> NewToken:
    """Make a token (operator, admin). Only this answer holds its secret."""
    token = await tokens.create_token(request)
    made.append(f"token={token.token}")
    return token


@tokens("GET", rest.TOKENS_PATH, ADMIN_GUARD)
async def every(tokens: TheTokens) -> TokenList:
    """All tokens, revoked ones included, without their secrets (operator, admin)."""
    return TokenList(tokens=await tokens.list_tokens())


@tokens("POST", rest.REVOKE_PATH, ADMIN_GUARD, Cause.NOT_FOUND, Cause.CONFLICT)
async def revoke(
    token: Annotated[str, Path(pattern=SHORT_ID_PATTERN)], tokens: TheTokens, caller: TheCaller
) -> TokenView:
    """End a token now (operator, admin)."""
    return await tokens.revoke_token(token, caller)


@log("GET", rest.AUDIT_PATH, AUDIT_GUARD)
async def audit(
    request: Request,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="the number of the last entry known")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
) -> AuditPage:
    """The audit log in order, with the signed head of the whole log (operator, audit)."""
    found: Audit = request.app.state.audit
    return await found.read_page(after, limit)


@health("GET", rest.HEALTH_PATH, MACHINES_GUARD, name="health")
async def alive() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


class ReadyView(rest.View):
    """The answer of /readyz.

    Attributes:
        checks: the names of the checks.
        clock_difference_s: how far this machine's clock is ahead of the database's.
        damaged: names of what can't go on because its stored data is damaged.
    """

    status: Literal["ready"]
    checks: tuple[str, ...]
    clock_difference_s: float
    damaged: tuple[str, ...]


@health("GET", rest.READY_PATH, MACHINES_GUARD, Cause.UNAVAILABLE)
async def ready(here: Here, request: Request) -> ReadyView:
    """Whether the process is ready; 503 with every reason if it is not."""
    readiness: Readiness = request.app.state.readiness
    checks, clock = await readiness.check_all(), request.app.state.clock
    return ReadyView(
        status="ready",
        checks=checks,
        clock_difference_s=round(clock.difference_s, 3),
        damaged=here.list_damaged(),
    )


@health("GET", "/openapi.json", EVERYONE_GUARD, include_in_schema=False)
async def document(request: Request) -> Response:
    """The API's document."""
    return Response(request.app.openapi_bytes, media_type="application/json")


@health(
    "GET",
    rest.METRICS_PATH,
    MACHINES_GUARD,
    response_class=Response,
    answers={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
)
async def exposition(here: Here, request: Request) -> Response:
    """This process's metrics, and the number of rounds of all processes."""
    readiness: Readiness = request.app.state.readiness
    # At the same time, because each may wait 5 s for a silent database, and Prometheus gives a scrape 10 s. The checks set a metric.
    counts, _ = await asyncio.gather(here.summaries.count_states(), readiness.failed_checks())
    metrics.count_rounds(counts)
    text: metrics.Exposition = request.app.state.exposition
    return Response(await text.render_text(), media_type=CONTENT_TYPE_LATEST)
