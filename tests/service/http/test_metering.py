"""Each request's processor time is measured and charged to its caller."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request

from service.http import callers
from service.http.callers import (
    ADDRESS_ALLOWANCE,
    ANONYMOUS_CALLER,
    CALLER_ALLOWANCE,
    Allowance,
    Caller,
    Limits,
    Role,
    TooMany,
)
from service.http.metering import _measure_steps, in_thread
from service.routes.published import PublishedCache
from service.storage.database import Batches
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Ticking, running
from veilsum.protocol import rest
from veilsum.protocol.messages import Opening

MEMBER = Caller(Role.MEMBER, "m-0", "ab" * 32)
HERE = Request({"type": "http", "client": ("192.0.2.1", 1)})
WORK_S = 0.05


def work() -> None:
    until_s = time.thread_time() + WORK_S
    while time.thread_time() < until_s:
        pass


async def test_a_coroutine_s_steps_are_measured_and_its_waits_are_not() -> None:
    spent = list[float]()

    async def inner() -> str:
        work()
        await asyncio.sleep(2 * WORK_S)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        work()
        return "done"

    assert await _measure_steps(inner(), spent.append) == "done"
    assert 2 * WORK_S <= sum(spent) < 3 * WORK_S

    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await _measure_steps(failing(), spent.append)


def test_processor_time_is_a_bucket_that_may_owe(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticking()
    found = Limits(CALLER_ALLOWANCE, Allowance(100.0, 1000, 1, share=0.5, busy_s=2.0), clock)
    spend = found.account_for(ANONYMOUS_CALLER, HERE)
    for seconds, owed_s in ((2.0, 0.0), (1.0, 2.0), (1000.0, callers.PROCESSOR_DEBT_MAX_S)):
        spend(seconds)
        if owed_s:
            clock.now_s += owed_s - 0.1
            with pytest.raises(TooMany, match=r"wait 1 s"):
                found.charge_request(ANONYMOUS_CALLER, HERE)
            found.charge_request(MEMBER, HERE)  # from the same address, by name
            clock.now_s += 0.2
        found.charge_request(ANONYMOUS_CALLER, HERE)
    monkeypatch.setattr(found, "_forget_at", 0)
    clock.now_s += 3600
    found.charge_request(ANONYMOUS_CALLER, HERE)
    assert not found._busy_s


async def test_refusals_of_one_address_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = Ticking(), list[float]()
    found = Limits(CALLER_ALLOWANCE, ADDRESS_ALLOWANCE, clock)

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 6))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(3):
        await found.delay_refusal(HERE)
    await found.delay_refusal(Request({"type": "http", "client": ("192.0.2.2", 1)}))
    for _ in range(1000):
        await found.delay_refusal(HERE)
    assert waited[:4] == [0.05, 0.1, 0.15, 0.05]
    assert max(waited) == callers.REFUSAL_WAIT_MAX_S


def spent(found: Limits, who: str) -> float:
    """Return the processor seconds missing from a caller's full allowance."""
    allowed = found._networks[1] if who.startswith("address") else found._named
    return max(0.0, found._busy_s.get(who, 0.0) - found._clock()) * allowed.share


async def in_batch(work: Callable[[], None]) -> None:
    async def worked(items: list[int]) -> list[None]:
        work()
        return [None] * len(items)

    await Batches(worked).put_item(0)


async def on_loop(work: Callable[[], None]) -> None:
    work()


async def test_whoever_asks_pays_for_the_time_that_its_requests_take(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(tmp_path, limits=Limits(CALLER_ALLOWANCE, ADDRESS_ALLOWANCE)) as server,
        server.anonymous() as nobody,
    ):
        await party.begin(server)

        async def ask(client: httpx.AsyncClient) -> httpx.Response:
            """Request a document that must be built."""
            server.app.state.published = PublishedCache()
            return await client.get(f"/v1/cohorts/{party.cohort}")

        await ask(nobody)
        view, few = server.coordinator.cohort_view, Allowance(1000.0, 1000, 64, share=0.001)
        for where in (on_loop, in_thread, in_batch):
            limits = server.app.state.limits = Limits(few, replace(few, busy_s=1.5 * WORK_S))

            async def costly(cohort: Any, where: Callable[..., Any] = where) -> Any:
                await where(work)
                return await view(cohort)

            monkeypatch.setattr(server.coordinator, "cohort_view", costly)
            assert (await ask(nobody)).status_code == 200
            assert WORK_S <= spent(limits, "address 127.0.0.1") < 1.5 * WORK_S
            assert (await ask(nobody)).status_code == 200
            assert refusal(await ask(nobody)) == (429, "too-many-requests")
            assert (await nobody.get(rest.HEALTH_PATH)).status_code == 200
            member = server.signing("m-0", party.keys["m-0"])
            assert (await ask(member)).status_code == 200
            assert spent(limits, f"member m-0 {party.federation}") >= WORK_S


async def test_whoever_asks_for_an_ended_round_pays_for_reading_it(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its opening lists all earlier rounds, and takes 10 ms for each thousand of them."""
    async with running(tmp_path) as server:
        await party.begin(server)
        round_id = await party.done(server)
        await server.tidy(round_id)
    read = Opening.from_bytes

    def read_slowly(content: bytes) -> Opening:
        work()
        return read(content)

    limits = Limits(CALLER_ALLOWANCE, ADDRESS_ALLOWANCE)
    async with running(tmp_path, limits=limits) as server, server.anonymous() as nobody:
        monkeypatch.setattr(Opening, "from_bytes", read_slowly)
        assert (await nobody.get(f"/v1/rounds/{round_id}")).status_code == 200
        assert spent(limits, "address 127.0.0.1") >= 0.8 * WORK_S


async def test_paths_that_are_none_are_paid_for(tmp_path: Path) -> None:
    async with (
        running(tmp_path, limits=Limits(CALLER_ALLOWANCE, ADDRESS_ALLOWANCE)) as server,
        server.anonymous() as nobody,
    ):
        assert (await nobody.get("/nothing")).status_code == 404
        assert spent(server.app.state.limits, "address 127.0.0.1") > 0
