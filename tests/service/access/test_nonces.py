"""Nonces are forgotten once their requests are too old, whatever is done to the clock."""

import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from protocol.errors import PeerFault
from protocol.request_signature import MAX_LIFETIME_S
from service.access.nonces import CLOCKS_S, FORGET_EVERY_S, Nonce, Nonces
from service.storage.database import Database
from service.storage.dialects import Sqlite
from service.storage.tables import nonces

SKEW_S = 60.0
LIVES_S = MAX_LIFETIME_S + 2 * SKEW_S
DAY_S = 86_400.0


class Clocks:
    """A clock of days that can be set, and a steady one, which time moves alike."""

    def __init__(self) -> None:
        self.ahead_s = self.passed_s = 0.0

    def now(self) -> float:
        return time.time() + self.passed_s + self.ahead_s

    def steady(self) -> float:
        return self.passed_s


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Sqlite(tmp_path / "db")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def started(database: Database, clocks: Clocks) -> Nonces:
    return Nonces(database, clocks.now, SKEW_S, clocks.steady)


_numbers = itertools.count()


def fresh(expires_s: float) -> Nonce:
    return Nonce("f/m-0", f"{next(_numbers):04}{os.urandom(8).hex()}", expires_s)


async def known(database: Database) -> set[str]:
    async with database.reading() as connection:
        return set((await connection.execute(select(nonces.c.nonce))).scalars())


async def live_on(store: Nonces, clocks: Clocks, for_s: float) -> None:
    """Time passes, with a request now and then."""
    for _ in range(int(for_s // FORGET_EVERY_S) + 1):
        clocks.passed_s += FORGET_EVERY_S
        await store.use(fresh(clocks.now() + 60))


async def test_what_has_expired_is_forgotten(database: Database, clocks: Clocks) -> None:
    store, old, new = started(database, clocks), fresh(time.time() - 2 * CLOCKS_S), fresh(time.time() + DAY_S)
    for each in (old, new):
        await store.use(each)
    await live_on(store, clocks, LIVES_S + FORGET_EVERY_S)
    assert old.nonce not in await known(database)
    assert new.nonce in await known(database)


async def test_a_clock_that_is_set_ahead_and_back_forgets_nothing_early(
    database: Database, clocks: Clocks
) -> None:
    store = started(database, clocks)
    await live_on(store, clocks, 2 * LIVES_S)
    used = fresh(clocks.now() + LIVES_S)
    await store.use(used)
    for jump_s in (DAY_S, -DAY_S):
        clocks.ahead_s = max(jump_s, 0.0)
        await live_on(store, clocks, LIVES_S / 3)
        with pytest.raises(PeerFault, match="before"):
            await store.use(used)


async def test_a_process_that_starts_with_a_wrong_clock_forgets_nothing_early(
    database: Database, clocks: Clocks
) -> None:
    used = fresh(clocks.now() + LIVES_S)
    await started(database, clocks).use(used)
    clocks.ahead_s = DAY_S
    store = started(database, clocks)
    await live_on(store, clocks, LIVES_S - 2 * FORGET_EVERY_S)
    with pytest.raises(PeerFault, match="before"):
        await store.use(used)


async def test_another_process_s_wrong_clock_forgets_nothing_that_the_database_s_does_not(
    database: Database, clocks: Clocks
) -> None:
    store, used = started(database, clocks), fresh(time.time() + 60)
    clocks.ahead_s = DAY_S  # and stays so, while the database's is right
    await live_on(store, clocks, 2 * LIVES_S)
    await started(database, Clocks()).use(used)
    await live_on(store, clocks, FORGET_EVERY_S)
    assert used.nonce in await known(database)


async def test_a_clock_that_was_set_back_does_not_keep_them_for_ever(
    database: Database, clocks: Clocks
) -> None:
    clocks.ahead_s = DAY_S
    store = started(database, clocks)
    await live_on(store, clocks, 2 * LIVES_S)
    clocks.ahead_s = 0.0
    async with database.transaction() as connection:
        await connection.execute(
            insert(nonces).values(signer="f/m-0", nonce="old", expires_s=time.time() - 2 * CLOCKS_S)
        )
    await live_on(store, clocks, LIVES_S + 2 * FORGET_EVERY_S)
    assert "old" not in await known(database)
