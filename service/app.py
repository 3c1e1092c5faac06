"""The application: `uvicorn service.app:app`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import structlog
from fastapi import FastAPI

from protocol import rest
from service import access, problems
from service.coordinator import Coordinator
from service.problems import declared
from service.routes import federations, rounds
from service.settings import Settings
from service.storage.blobs import FileBlobs
from service.storage.database import Database

MAX_JSON_BYTES = 1 << 20


def create_app(settings: Settings | None = None) -> FastAPI:
    """A coordinator over a data folder; routes, storage and the work that goes on by itself.

    Args:
        settings: None reads the environment when the app starts.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        chosen = settings or Settings()
        chosen.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = Database(chosen.data_dir / "coordinator.sqlite3")
        await database.start()
        coordinator = Coordinator(
            database,
            FileBlobs(chosen.data_dir / "blobs"),
            access.load_key(chosen.data_dir / "coordinator.key"),
        )
        app.state.coordinator = coordinator
        app.state.token_hash = await access.token_hash(database, chosen.operator_token)
        await coordinator.load()
        running = asyncio.create_task(coordinator.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await database.stop()

    app = FastAPI(
        title="veilsum coordinator",
        summary="Secure sums of calibration statistics: the coordinator sees masked uploads and the total.",
        version=version("veilsum"),
        lifespan=lifespan,
        max_body_size=MAX_JSON_BYTES,
        telemetry=None,
    )
    problems.install(app)
    app.include_router(federations.router)
    app.include_router(rounds.router)

    @app.get(rest.HEALTH, tags=["health"], responses=declared())
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    return app


structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.JSONRenderer(),
    ]
)
app = create_app()
