"""The application: `uvicorn service.app:app`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version

import structlog
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import ASGIApp

from protocol.errors import Misuse
from service import keys, problems
from service.access.bodies import Bodies, Pace, Room
from service.access.gate import Gate
from service.access.issuer import Issuer
from service.access.limits import Allowance, Limits
from service.access.nonces import Nonces
from service.access.tokens import Tokens
from service.audit import Audit
from service.coordinator import Coordinator
from service.pages import acting
from service.pages import routes as pages
from service.pages.rendering import problem_page
from service.routes import audit, combinations, federations, health, rounds, tokens
from service.routes.headers import Headers
from service.settings import Settings
from service.shutdown import on_stop_signal
from service.storage.faults import worded
from service.storage.stores import opened
from service.telemetry import logs
from service.telemetry.logs import LOGGER, where
from service.telemetry.looks import checks_of
from service.telemetry.metrics import Exposition, watch_loop
from service.telemetry.readiness import Readiness
from service.telemetry.refused import Refused
from service.telemetry.requests import RequestTelemetry
from service.telemetry.traces import tracing

log = structlog.get_logger(LOGGER)
MAX_JSON_BYTES = 1 << 20


class Application(FastAPI):
    """FastAPI, with every refusal a problem, and every answer under its headers and an id."""

    def build_middleware_stack(self) -> ASGIApp:
        """Around FastAPI's own, which answers by itself where a body is too long or a request fails."""
        return Headers(RequestTelemetry(problems.Oversized(super().build_middleware_stack())))


def create_app(settings: Settings | None = None, now: Callable[[], float] = time.time) -> FastAPI:
    """A coordinator over a data folder; routes, storage and the work that goes on by itself.

    Args:
        settings: None reads the environment when the app starts.
        now: Unix time in seconds.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as ending:
            try:
                coordinator = await _started(app, settings or Settings(), now, ending)
            except Exception as error:
                app.state.failure = error  # for who can say it better than a log
                log.error("start failed", why=_why(error), **where(error))  # noqa: TRY400 - its words stay out
                raise
            with on_stop_signal(coordinator.stop_waiting):
                yield
            coordinator.stop_waiting()

    app = Application(
        title="veilsum coordinator",
        summary="Secure sums of calibration statistics: the coordinator sees masked uploads and the total.",
        version=version("veilsum"),
        lifespan=lifespan,
        max_body_size=MAX_JSON_BYTES,
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # FastAPI's own has no limits
        redirect_slashes=False,
        telemetry=tracing(),
    )
    problems.install(app, problem_page)
    app.state.refused, app.state.exposition = Refused(), Exposition()
    app.add_middleware(Bodies)
    app.include_router(federations.router)
    app.include_router(rounds.router)
    app.include_router(combinations.router)
    app.include_router(tokens.router)
    app.include_router(audit.router)
    app.include_router(health.router)
    app.include_router(pages.router)
    app.include_router(acting.router)
    app.include_router(pages.files)
    return app


async def _started(
    app: FastAPI, chosen: Settings, now: Callable[[], float], ending: AsyncExitStack
) -> Coordinator:
    """Open the stores, bring everything back, and begin what goes on by itself; `ending` undoes it."""
    database, blobs = await ending.enter_async_context(opened(chosen))
    key = keys.key_of(chosen)
    with worded():
        await keys.claim(database, key)
    coordinator = Coordinator(
        database,
        blobs,
        key,
        now=now,
        max_wait_s=chosen.max_wait_s,
        resume_grace_s=chosen.resume_grace_s,
        skew_s=chosen.clock_skew_s,
    )
    app.state.coordinator = coordinator
    app.state.audit = Audit(database, key)
    app.state.tokens = Tokens(database, now, chosen.operator_token, chosen.data_dir)
    app.state.gate = Gate(
        Nonces(database, now),
        app.state.tokens,
        now,
        chosen.clock_skew_s,
        chosen.public_url,
        Issuer(chosen.oidc, chosen.clock_skew_s) if chosen.oidc is not None else None,
    )
    app.state.limits = Limits(
        Allowance(chosen.caller_requests_per_s, chosen.caller_burst, chosen.caller_at_once),
        Allowance(
            chosen.address_requests_per_s,
            chosen.address_burst,
            chosen.address_at_once,
            chosen.address_streams,
        ),
    )
    app.state.room = Room(chosen.body_room_bytes)
    app.state.pace = Pace(chosen.body_grace_s, chosen.body_bytes_per_s)
    app.state.readiness = Readiness(checks_of(coordinator))
    with worded():
        await coordinator.load()
        await app.state.tokens.start()  # last, for a start that fails is to draw none
    work = {
        "the keeper": coordinator.keeper.run(),
        "following others": coordinator.follow(),
        "the loop's watch": watch_loop(),
    }
    coordinator.background = tuple(asyncio.create_task(each, name=name) for name, each in work.items())
    for task in coordinator.background:
        ending.push_async_callback(_ended, task)
    return coordinator


def _why(error: Exception) -> str | None:
    """What a log may say of a start that failed: our own words, or the names of settings, which are no secrets as their values may be."""
    if isinstance(error, ValidationError):
        return "out of its domain: " + ", ".join(sorted({str(each["loc"][0]) for each in error.errors()}))
    return str(error) if isinstance(error, Misuse) else None


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def __getattr__(name: str) -> FastAPI:
    """`app`, made when a server asks for it: who makes one by `create_app` is spared a second."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    logs.configure()
    made = globals()["app"] = create_app()
    return made
