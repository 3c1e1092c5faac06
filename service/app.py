"""The application: `uvicorn service.app:app`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from protocol import rest
from service import access, problems
from service.coordinator import Coordinator
from service.problems import declared
from service.routes import combinations, federations, helpers, rounds
from service.settings import Settings
from service.shutdown import on_stop_signal
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from service.storage.folder import FolderLock, make_folder

MAX_JSON_BYTES = 1 << 20


class Application(FastAPI):
    """FastAPI, with every refusal a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await super().__call__(scope, receive, problems.oversized_as_problem(send))


def create_app(settings: Settings | None = None, now: Callable[[], float] = time.time) -> FastAPI:
    """A coordinator over a data folder; routes, storage and the work that goes on by itself.

    Args:
        settings: None reads the environment when the app starts.
        now: Unix time in seconds.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        chosen = settings or Settings()
        folder = chosen.data_dir
        async with AsyncExitStack() as ending:
            make_folder(folder)
            ending.callback(FolderLock(folder).release)
            database = Database(folder / "coordinator.sqlite3")
            ending.push_async_callback(database.stop)
            await database.start()
            coordinator = Coordinator(
                database,
                FileBlobs(folder / "blobs"),
                access.load_key(folder / "coordinator.key"),
                now=now,
                max_wait_s=chosen.max_wait_s,
                resume_grace_s=chosen.resume_grace_s,
            )
            app.state.coordinator = coordinator
            app.state.token_hash = await access.token_hash(database, chosen.operator_token)
            await coordinator.load()
            ending.push_async_callback(_ended, asyncio.create_task(coordinator.keeper.run()))
            with on_stop_signal(coordinator.stop_waiting):
                yield
            coordinator.stop_waiting()

    app = Application(
        title="veilsum coordinator",
        summary="Secure sums of calibration statistics: the coordinator sees masked uploads and the total.",
        version=version("veilsum"),
        lifespan=lifespan,
        max_body_size=MAX_JSON_BYTES,
        redirect_slashes=False,
        telemetry=None,
    )
    problems.install(app)
    app.include_router(federations.router)
    app.include_router(rounds.router)
    app.include_router(combinations.router)
    app.include_router(helpers.router)

    @app.get(rest.HEALTH, tags=["health"], responses=declared())
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    return app


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.JSONRenderer(),
    ]
)
app = create_app()
