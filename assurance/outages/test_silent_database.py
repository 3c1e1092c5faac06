"""A database that keeps its connections open and says nothing: who asks is told so in time, and served once it speaks again."""

import asyncio
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from assurance.outages.cable import Cable
from service.storage import dialects
from service.storage.dialects import Postgres
from tests.support.servers import Servers


def wait(released: threading.Event) -> None:
    assert released.wait(60)


def one(connection: Connection) -> int:
    return int(connection.execute(text("SELECT 1")).scalar_one())


@pytest.mark.slow
async def test_nobody_waits_for_ever(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("ANSWER_S", 1.0), ("IDLE_S", 2.0), ("PATIENCE_S", 0.5)):
        monkeypatch.setattr(dialects, name, seconds)
    async with Cable((await servers.settings(tmp_path))["database_url"]).laid() as cable:
        database = Postgres(cable.url)
        await database.start()
        holds, released = asyncio.Event(), threading.Event()

        def hold(connection: Connection) -> None:
            """Whose rollback goes into the silence, too."""
            one(connection)
            holds.set()
            database.blocking(connection, partial(wait, released))

        listening = asyncio.create_task(database.listen(lambda _: None))
        holding = asyncio.create_task(database.read(hold))
        await holds.wait()
        cable.silent = True
        asked = [ask(one) for ask in (database.read, database.write) * 4]
        told = await asyncio.wait_for(asyncio.gather(holding, *asked, return_exceptions=True), 20)
        released.set()
        assert [type(each) for each in told] == [TimeoutError] * 9
        with pytest.raises(OSError):  # noqa: PT011 - by its own look, or by another's word
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
