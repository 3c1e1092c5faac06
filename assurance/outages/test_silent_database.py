"""A database that keeps its connections open and says nothing: who asks is told so in time, and served once it speaks again."""

import asyncio
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from assurance.outages.cable import Cable
from service.storage import dialects
from service.storage.dialects import Postgres
from tests.support.servers import Servers


async def answered(database: Postgres, *, writing: bool) -> int:
    async with database.transaction() if writing else database.reading() as connection:
        return int((await connection.execute(text("SELECT 1"))).scalar_one())


@pytest.mark.slow
async def test_nobody_waits_for_ever(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("ANSWER_S", 1.0), ("IDLE_S", 2.0), ("PATIENCE_S", 0.5)):
        monkeypatch.setattr(dialects, name, seconds)
    async with Cable((await servers.settings(tmp_path))["database_url"]).laid() as cable:
        database = Postgres(cable.url)
        await database.start()
        holds = asyncio.Event()

        async def hold() -> None:
            """Whose rollback goes into the silence, too."""
            async with database.reading() as connection:
                await connection.execute(text("SELECT 1"))
                holds.set()
                await asyncio.Event().wait()

        listening = asyncio.create_task(database.listen(lambda _: None))
        holding = asyncio.create_task(hold())
        await holds.wait()
        cable.silent = True
        asked = [answered(database, writing=writing) for writing in (False, True) * 4]
        told = await asyncio.wait_for(asyncio.gather(holding, *asked, return_exceptions=True), 20)
        assert [type(each) for each in told] == [TimeoutError] * 9
        with pytest.raises(OSError):  # noqa: PT011 - by its own look, or by another's word
            await asyncio.wait_for(listening, 20)
        cable.silent = False
        end = time.monotonic() + 20
        while time.monotonic() < end:
            told = await asyncio.gather(
                *(answered(database, writing=writing) for writing in (False, True) * 8),
                return_exceptions=True,
            )
            if told == [1] * 16:
                break
        assert told == [1] * 16
        await database.stop()
