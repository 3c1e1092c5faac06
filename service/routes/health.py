"""Whether the process lives and can work, and its metrics."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from protocol import rest
from protocol.causes import Cause
from service.access.guards import GuardedRoute
from service.problems import declared
from service.routes.common import ANYBODY, MACHINES, Here
from service.telemetry import metrics
from service.telemetry.readiness import Readiness

router = APIRouter(tags=["health"], route_class=GuardedRoute)


@router.get(rest.HEALTH, dependencies=MACHINES.dependencies, responses=declared())
async def health() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get(rest.READY, dependencies=MACHINES.dependencies, responses=declared(Cause.UNAVAILABLE))
async def ready(request: Request) -> dict[str, str | list[str]]:
    """Whether it can work: what was looked at; 503 with every reason where it can't."""
    readiness: Readiness = request.app.state.readiness
    return {"status": "ready", "checks": list(await readiness.check())}


@router.get("/openapi.json", dependencies=ANYBODY.dependencies, include_in_schema=False)
async def document(request: Request) -> Response:
    """The API's document."""
    return JSONResponse(request.app.openapi())


@router.get(
    rest.METRICS,
    dependencies=MACHINES.dependencies,
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}, **declared()},
)
async def exposition(here: Here, request: Request) -> Response:
    """This process's metrics, and the rounds of all."""
    readiness: Readiness = request.app.state.readiness
    await readiness.missing()  # which sets a metric: nobody else may ask
    await here.catalogue.look()
    metrics.count_rounds(here.catalogue.states())
    text: metrics.Exposition = request.app.state.exposition
    return Response(await text.text(), media_type=CONTENT_TYPE_LATEST)
