"""Leases on PostgreSQL: one process has the work, and another takes over if it is dead or silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import delete, literal, select, update

from service.coordination.scheduler import Leases
from service.storage.dialects import Postgres
from service.storage.tables import leases
from tests.support.servers import Servers
from tests.support.serving import carry_out


@asynccontextmanager
async def process(url: str, *, listening: bool = True) -> AsyncIterator[Postgres]:
    """Open a database as one process does; its connections end with the block."""
    database = Postgres(url)
    await database.start()
    told = asyncio.create_task(database.listen_for_changes(lambda _: None)) if listening else None
    try:
        while listening and await is_gone(database, database):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
        yield database
    finally:
        if told is not None:
            told.cancel()
            await asyncio.gather(told, return_exceptions=True)
        await database.stop()


async def is_gone(database: Postgres, other: Postgres) -> bool:
    """Return whether `other` is gone, as `database`'s process sees it."""
    return bool(await database.read_value(select(database.process_gone(literal(other.process_name)))))


@pytest.fixture
async def url(servers: Servers, tmp_path: Path) -> str:
    return str((await servers.settings(tmp_path))["database_url"])


async def test_one_has_it_at_a_time(url: str) -> None:
    async with process(url) as one, process(url) as other:
        async with Leases(one).hold_lease("work") as mine:
            assert mine
            async with Leases(other).hold_lease("work") as theirs:
                assert not theirs
            async with Leases(one).hold_lease("work") as twice:
                assert not twice
            async with Leases(other).hold_lease("other work") as theirs:
                assert theirs
        async with Leases(other).hold_lease("work") as theirs:
            assert theirs


async def test_a_dead_process_leaves_its_work_at_once(url: str) -> None:
    async with process(url) as other:
        async with process(url) as one:
            fence = await Leases(one)._take_lease("work")
            assert fence == 1
            assert await Leases(other)._take_lease("work") is None
        # The server ends a session that is gone by itself.
        async with asyncio.timeout(120):
            while (fence := await Leases(other)._take_lease("work")) is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        assert fence == 2


async def test_one_that_stands_still_leaves_it_when_its_lease_has_run_out(url: str) -> None:
    async with process(url) as one, process(url) as other:
        assert await Leases(one, lease_s=1.5)._take_lease("work") == 1
        assert await Leases(other)._take_lease("work") is None
        async with asyncio.timeout(120):
            while (fence := await Leases(other)._take_lease("work")) is None:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.1)
        assert fence == 2


async def test_a_lease_lasts_for_as_long_as_the_work(url: str) -> None:
    lease_s = 1.2
    async with process(url) as one, process(url) as other, Leases(one, lease_s).hold_lease("work") as mine:
        assert mine
        await asyncio.sleep(1.3 * lease_s)
        async with Leases(other).hold_lease("work") as theirs:
            assert not theirs


async def test_who_does_not_listen_keeps_nothing(url: str) -> None:
    async with process(url, listening=False) as one, process(url) as other:
        assert await Leases(one)._take_lease("work") == 1
        assert await Leases(other)._take_lease("work") == 2


async def test_who_comes_back_late_lets_go_of_nothing_that_was_taken_since(url: str) -> None:
    """Not even if its own process has taken the lease again: each time it is a new lease."""
    async with process(url) as one, process(url) as other:
        async with Leases(one).hold_lease("work") as mine:
            assert mine
            await carry_out(one, update(leases).values(until_s=0.0))  # it stood still
            assert await Leases(one)._take_lease("work") == 2
        async with Leases(other).hold_lease("work") as theirs:
            assert not theirs


async def test_who_comes_back_late_lets_go_of_no_lease_that_was_begun_anew(url: str) -> None:
    """After another process has held and released it, fences begin at 1 again."""
    async with process(url) as one, process(url) as other:
        async with Leases(one).hold_lease("work") as mine:
            assert mine
            await carry_out(one, delete(leases))
            assert await Leases(other)._take_lease("work") == 1
        async with Leases(one).hold_lease("work") as again:
            assert not again
