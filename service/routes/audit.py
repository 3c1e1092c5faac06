"""The audit log."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from protocol import rest
from protocol.audit import PAGE_MAX, AuditPage
from service.access.guards import GuardedRoute
from service.audit import Audit
from service.problems import declared
from service.routes.common import READ

router = APIRouter(tags=["audit"], route_class=GuardedRoute)


@router.get(rest.AUDIT, dependencies=READ.dependencies, responses=declared(*READ.causes))
async def audit(
    request: Request,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="the number of the last entry known")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
) -> AuditPage:
    """Who did what, in order, with the signed head of the whole log (operator, read)."""
    log: Audit = request.app.state.audit
    return await log.page(after, limit)
