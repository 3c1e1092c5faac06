"""Nonces are forgotten once their requests are too old, even if the clock is set."""

import itertools
import os
import time

import pytest
from sqlalchemy import insert, select

from service.storage.database import Database
from service.storage.nonces import CLOCK_SKEW_MAX_S, DELETE_EVERY_S, Nonce, Nonces
from service.storage.tables import nonces
from tests.support.refusals import refused
from tests.support.serving import carry_out
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_MAX_S

pytestmark = pytest.mark.both_stores
SKEW_S = 60.0
LIVES_S = SIGNATURE_LIFETIME_MAX_S + 2 * SKEW_S
DAY_S = 86_400.0


class Clocks:
    """A clock of days that can be set, and a steady one; time moves both."""

    def __init__(self) -> None:
        self.ahead_s = self.passed_s = 0.0

    def now(self) -> float:
        return time.time() + self.passed_s + self.ahead_s

    def steady(self) -> float:
        return self.passed_s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def started(database: Database, clocks: Clocks) -> Nonces:
    return Nonces(database, clocks.now, clocks.steady)


_numbers = itertools.count()


def fresh(expires_s: float) -> Nonce:
    return Nonce("f/m-0", f"{next(_numbers):04}{os.urandom(8).hex()}", expires_s)


async def known(database: Database) -> set[str]:
    return set(await database.read_values(select(nonces.c.nonce)))


async def live_on(store: Nonces, clocks: Clocks, for_s: float) -> None:
    """Let time pass, with some requests."""
    for _ in range(int(for_s // DELETE_EVERY_S) + 1):
        clocks.passed_s += DELETE_EVERY_S
        await store.use_nonce(fresh(clocks.now() + 60))


async def test_what_has_expired_is_forgotten(database: Database, clocks: Clocks) -> None:
    store, old, new = (
        started(database, clocks),
        fresh(time.time() - 2 * CLOCK_SKEW_MAX_S),
        fresh(time.time() + DAY_S),
    )
    for each in (old, new):
        await store.use_nonce(each)
    await live_on(store, clocks, LIVES_S + DELETE_EVERY_S)
    assert old.nonce not in await known(database)
    assert new.nonce in await known(database)


async def test_what_another_process_s_clock_may_not_call_expired_is_kept(
    database: Database, clocks: Clocks
) -> None:
    store, used = started(database, clocks), fresh(time.time() - CLOCK_SKEW_MAX_S / 2)
    await store.use_nonce(used)
    await live_on(store, clocks, LIVES_S)
    behind = Clocks()
    behind.ahead_s = -CLOCK_SKEW_MAX_S / 2
    with refused("request-replayed", ...):
        await started(database, behind).use_nonce(used)


async def test_a_clock_that_is_set_ahead_and_back_forgets_nothing_early(
    database: Database, clocks: Clocks
) -> None:
    store = started(database, clocks)
    await live_on(store, clocks, 2 * LIVES_S)
    used = fresh(clocks.now() + LIVES_S)
    await store.use_nonce(used)
    for jump_s in (DAY_S, -DAY_S):
        clocks.ahead_s = max(jump_s, 0.0)
        await live_on(store, clocks, LIVES_S / 3)
        with refused("request-replayed", ...):
            await store.use_nonce(used)


async def test_a_process_that_starts_with_a_wrong_clock_forgets_nothing_early(
    database: Database, clocks: Clocks
) -> None:
    used = fresh(clocks.now() + LIVES_S)
    await started(database, clocks).use_nonce(used)
    clocks.ahead_s = DAY_S
    store = started(database, clocks)
    await live_on(store, clocks, LIVES_S - 2 * DELETE_EVERY_S)
    with refused("request-replayed", ...):
        await store.use_nonce(used)


async def test_another_process_s_wrong_clock_forgets_nothing_that_the_database_s_does_not(
    database: Database, clocks: Clocks
) -> None:
    store, used = started(database, clocks), fresh(time.time() + 60)
    clocks.ahead_s = DAY_S  # and stays so, while the database's is right
    await live_on(store, clocks, 2 * LIVES_S)
    await started(database, Clocks()).use_nonce(used)
    await live_on(store, clocks, DELETE_EVERY_S)
    assert used.nonce in await known(database)


async def test_a_clock_that_was_set_back_does_not_keep_them_for_ever(
    database: Database, clocks: Clocks
) -> None:
    clocks.ahead_s = DAY_S
    store = started(database, clocks)
    await live_on(store, clocks, 2 * LIVES_S)
    clocks.ahead_s = 0.0
    long_ago_s = time.time() - 2 * CLOCK_SKEW_MAX_S
    await carry_out(database, insert(nonces).values(signer="f/m-0", nonce="old", expires_s=long_ago_s))
    await live_on(store, clocks, LIVES_S + 2 * DELETE_EVERY_S)
    assert "old" not in await known(database)


async def test_what_is_forgotten_is_taken_no_more_where_a_clock_is_set_back(
    database: Database, clocks: Clocks
) -> None:
    store, long_ago = started(database, clocks), time.time() - DAY_S
    for expires_s in (long_ago + 2, long_ago, long_ago + 1):
        await store.use_nonce(fresh(expires_s))
    used = fresh(long_ago + 1)
    await store.use_nonce(used)
    await live_on(store, clocks, LIVES_S + 2 * DELETE_EVERY_S)
    assert used.nonce not in await known(database)
    clocks.ahead_s = -DAY_S - clocks.passed_s
    for again in (used, fresh(long_ago + 2)):
        with refused("clock-skew", ...):
            await started(database, clocks).use_nonce(again)
    await store.use_nonce(fresh(long_ago + 2.5))
    await store.use_nonce(Nonce("f/m-1", used.nonce, used.expires_s))  # nothing of this signer was forgotten
    # It is the latest that counts, whatever is forgotten after it, and one row for each signer.
    clocks.ahead_s = 0.0
    await live_on(store, clocks, LIVES_S + 2 * DELETE_EVERY_S)
    with refused("clock-skew", ...):
        await store.use_nonce(fresh(long_ago + 2.5))
    rows = await database.read_rows(select(nonces).where(nonces.c.nonce == ""))
    assert {row.signer: row.expires_s for row in rows} == {
        "f/m-0": pytest.approx(long_ago + 2.5),
        "f/m-1": pytest.approx(used.expires_s),
    }
