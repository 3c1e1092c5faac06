"""The application: `uvicorn service.app:app`."""

import asyncio
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from importlib.metadata import version
from types import FrameType
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from service.access.bodies import ENDING_KEY, Pace, Room
from service.access.gate import Gate
from service.access.guards import SECURITY_SCHEMES
from service.access.issuer import Issuer
from service.access.tokens import Tokens, hash_configured
from service.coordination.cache import Recent
from service.coordination.coordinator import Coordinator
from service.coordination.readiness import Readiness, checks_of
from service.http import problems
from service.http.callers import ADDRESS_ALLOWANCE, CALLER_ALLOWANCE, Limits
from service.http.metering import Metering
from service.pages import acting
from service.pages import routes as pages
from service.pages.rendering import PAGE_CACHE_BYTES, KeptPages, problem_page
from service.routes import federations, operating, rounds
from service.routes.published import PublishedCache
from service.settings import Settings
from service.storage import keys
from service.storage.audit import Audit
from service.storage.clock import Clock
from service.storage.faults import reword_errors
from service.storage.nonces import Nonces
from service.storage.objects import BucketError
from service.storage.stores import open_stores
from service.telemetry import logs
from service.telemetry.logs import configure_tracing, describe_error, log, note_answer
from service.telemetry.metrics import Exposition, watch_loop
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.request_signature import METHODS_WITH_BODY
from veilsum.protocol.rest import REQUEST_ID_HEADER
from veilsum.system.files import make_folder

MAX_JSON_BYTES = 1 << 20
REFUSED_ROUNDS = 1024
"""How many rounds' refused requests are counted, by cause, for their pages."""
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""What every answer tells browsers and caches, unless it says otherwise itself."""
OVER_TLS = {"strict-transport-security": "max-age=31536000; includeSubDomains"}


class Edge:
    """ASGI middleware around everything else.

    Each request gets an id of our own, which its log lines and its answer show (a client's own could be anything, and is ignored), a
    least rate for its body, and an ExitStack that is closed once it is answered, streams included. HEAD is answered as GET, whose body
    the server does not send (RFC 9110 §9.3.2). Each answer gets `HEADERS`. FastAPI answers by itself where a body is too long, in plain
    text; here this becomes a problem.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        request_id, started, status = secrets.token_hex(8), time.perf_counter(), 500
        problem: bytes | None = None

        async def send_checked(message: Message) -> None:
            nonlocal status, problem
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                if status == 413 and headers.get("content-type", "").startswith("text/plain"):
                    fault = PeerFault(Cause.OVERSIZED, "the body is longer than this route takes")
                    answer = problems.answer_of(problems.note_refusal(fault))
                    headers.update(answer.headers)
                    problem = bytes(answer.body)
                headers[REQUEST_ID_HEADER] = request_id
                for name, value in (HEADERS | (OVER_TLS if scope["scheme"] == "https" else {})).items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body" and problem is not None:
                message, problem = {**message, "body": problem}, b""
            await send(message)

        if scope["method"] in METHODS_WITH_BODY:
            receive = scope["app"].state.pace.limit_pace(scope, receive)
        with bound_contextvars(request=request_id):
            try:
                with ExitStack() as scope[ENDING_KEY]:
                    await self.app(scope, receive, send_checked)
            finally:
                note_answer({**scope, "method": method}, status, time.perf_counter() - started)


class Application(FastAPI):
    """FastAPI within `Edge`, its requests measured."""

    def build_middleware_stack(self) -> ASGIApp:
        """Wrap FastAPI's own, which answers by itself where a body is too long or a request fails."""
        return Metering(Edge(super().build_middleware_stack()))

    def openapi(self) -> dict[str, Any]:
        """FastAPI's document, with the guards' security schemes."""
        document = super().openapi()
        document["components"]["securitySchemes"] = SECURITY_SCHEMES
        return document

    @cached_property
    def openapi_bytes(self) -> bytes:
        """The API's document, as it is sent."""
        return bytes(JSONResponse(self.openapi()).body)


def create_app(settings: Settings | None = None, clock: Clock | None = None) -> FastAPI:
    """Make a coordinator over a data folder: routes, storage and background work.

    Args:
        settings: None reads the environment when the app starts.
        clock: set by the database's; None for one of its own.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as ending:
            try:
                coordinator = await _start_coordinator(app, settings or Settings(), clock or Clock(), ending)
            except Exception as error:
                app.state.failure = error  # reported better than by a log
                why = str(error) if isinstance(error, Misuse | BucketError) else None
                log.error("start failed", why=why, **describe_error(error))
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
        telemetry=configure_tracing(),
    )
    app.state.pages, app.state.published = KeptPages(PAGE_CACHE_BYTES), PublishedCache()
    problems.install_handlers(app, problem_page)
    app.state.refused, app.state.exposition = Recent[str, Counter[str]](REFUSED_ROUNDS), Exposition()
    for router in ROUTERS:
        # Not included: FastAPI would try the included routers' routes twice for each request.
        app.router.routes.extend(router.routes)
    return app


ROUTERS = (
    rounds.serve.router,  # first: most requests are theirs
    federations.serve.router,
    federations.combinations.router,
    operating.tokens.router,
    operating.log.router,
    operating.health.router,
    pages.router,
    acting.router,
    pages.files,
)


async def _start_coordinator(
    app: FastAPI, chosen: Settings, now: Clock, ending: AsyncExitStack
) -> Coordinator:
    """Open the stores, load what is open, and begin the background work; `ending` undoes it."""
    with reword_errors():
        make_folder(chosen.data_dir)
        # All that may refuse to start comes before the database is upgraded.
        key, token = keys.key_of(chosen), hash_configured(chosen.operator_token)
    database, blobs = await ending.enter_async_context(open_stores(chosen, partial(keys.claim_database, key)))
    with reword_errors():
        await now.read_clock(database)
    coordinator = Coordinator(
        database,
        blobs,
        chosen.data_dir,
        key,
        now=now,
        max_wait_s=chosen.max_wait_s,
        audit_days=chosen.audit_days,
    )
    app.state.coordinator, app.state.clock = coordinator, now
    app.state.audit = Audit(database, key)
    app.state.tokens = Tokens(database, now, token, chosen.data_dir)
    app.state.gate = Gate(
        Nonces(database, now),
        app.state.tokens,
        now,
        chosen.clock_skew_s,
        chosen.public_url,
        Issuer(chosen.oidc, now, chosen.clock_skew_s) if chosen.oidc is not None else None,
    )
    app.state.limits = Limits(
        CALLER_ALLOWANCE.at_rate(chosen.caller_requests_per_s),
        ADDRESS_ALLOWANCE.at_rate(chosen.address_requests_per_s),
    )
    app.state.room = Room(chosen.body_room_bytes)
    app.state.pace = Pace()
    app.state.readiness = Readiness(checks_of(coordinator, now))
    with reword_errors():
        await coordinator.load_open(chosen.resume_grace_s)
        await app.state.tokens.create_first_token()  # last, so that a start that fails draws none
    work = {
        "the scheduler": coordinator.scheduler.run(),
        "following others": coordinator.feed.follow_changes(),
        "the clock": now.follow_clock(database),
        "the loop's watch": watch_loop(),
        "last heard": coordinator.last_heard.keep_writing(),
        "the audit log": app.state.audit.keep_writing(),
    }
    coordinator.background = tuple(asyncio.create_task(each, name=name) for name, each in work.items())
    for task in coordinator.background:
        ending.push_async_callback(_end_task, task)
    return coordinator


async def _end_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop at SIGTERM and SIGINT, before the server's handlers: those wait for open polls to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, previous = asyncio.get_running_loop(), {}
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        # Only beside a server that ends the process in its own time; the defaults end it on the spot.
        if callable(handler) and handler is not signal.default_int_handler:
            previous[number] = handler

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        previous[signal.Signals(number)](number, frame)

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def __getattr__(name: str) -> FastAPI:
    """Make `app` when a server asks for it, so that importing `create_app` does not take a second longer."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    logs.configure_logs()
    made = globals()["app"] = create_app()
    return made
