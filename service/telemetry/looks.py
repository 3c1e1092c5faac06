"""What /readyz looks at."""

import asyncio
import secrets

from sqlalchemy import delete

from service.coordinator import Coordinator
from service.storage import migrating
from service.storage.tables import tokens
from service.telemetry.readiness import Check, NotReady


def checks_of(coordinator: Coordinator) -> dict[str, Check]:
    """Each check by the name of what it looks at."""
    # One for the process: what a look that was cut off has left goes with the next.
    name = f"readiness/{secrets.token_hex(8)}"

    async def process() -> None:
        if coordinator.stopping:
            raise NotReady("the process is stopping")
        for task in coordinator.background:
            if task.done():
                raise NotReady(f"{task.get_name()} has ended: start the process again")

    async def database() -> None:
        async with coordinator.database.transaction() as connection:
            # Changes nothing, and takes what a change takes: the writer's lock and a commit.
            await connection.execute(delete(tokens).where(tokens.c.sha256 == ""))

    async def migrations() -> None:
        async with coordinator.database.reading() as connection:
            found = await connection.run_sync(migrating.current)
        if found != migrating.newest():
            raise NotReady(
                f"the database is at revision {found}, this release works with {migrating.newest()}"
            )

    async def blobs() -> None:
        content = secrets.token_bytes(16)
        await asyncio.to_thread(coordinator.blobs.put, name, content)
        try:
            if await asyncio.to_thread(coordinator.blobs.get, name) != content:
                raise NotReady("what was stored comes back changed")
        finally:
            await asyncio.to_thread(coordinator.blobs.delete, name)

    return {"process": process, "database": database, "migrations": migrations, "blobs": blobs}
