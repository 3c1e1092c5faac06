"""A database keeps its connections open but doesn't answer. Clients get a refusal in time, and are served again afterwards."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from assurance.outages.cable import Cable
from service.storage import dialects
from service.storage.dialects import Postgres
from tests.support.servers import Servers


def one(connection: Connection) -> int:
    return int(connection.execute(text("SELECT 1")).scalar_one())


@pytest.mark.slow
async def test_nobody_waits_for_ever(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (
        ("ANSWER_TIMEOUT_S", 1.0),
        ("COMMAND_TIMEOUT_S", 2.0),
        ("CONNECTION_TIMEOUT_S", 0.5),
    ):
        monkeypatch.setattr(dialects, name, seconds)
    async with Cable((await servers.settings(tmp_path))["database_url"]).laid() as cable:
        database = Postgres(cable.url)
        await database.start()
        holds, released = asyncio.Event(), asyncio.Event()

        def hold(connection: Connection) -> None:
            """Hold a connection whose rollback gets no answer either."""
            one(connection)
            holds.set()
            driver: Any = connection.connection.dbapi_connection
            driver.run_async(lambda _: released.wait())

        listening = asyncio.create_task(database.listen_for_changes(lambda _: None))
        holding = asyncio.create_task(database.read(hold))
        await holds.wait()
        cable.silent = True
        asked = [ask(one) for ask in (database.read, database.write) * 4]
        told = await asyncio.wait_for(asyncio.gather(holding, *asked, return_exceptions=True), 20)
        released.set()
        assert [type(each) for each in told] == [TimeoutError] * 9
        with pytest.raises(OSError):  # noqa: PT011 - detected by its own check, or through another error
            await asyncio.wait_for(listening, 20)
        cable.silent = False
        end = time.monotonic() + 20
        while time.monotonic() < end:
            told = await asyncio.gather(
                *(ask(one) for ask in (database.read, database.write) * 8), return_exceptions=True
            )
            if told == [1] * 16:
                break
        assert told == [1] * 16
        await database.stop()
