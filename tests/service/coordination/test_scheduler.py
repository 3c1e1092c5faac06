import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog

from service.coordination import scheduler
from service.coordination.scheduler import Job, Leases, Scheduler
from tests.support.serving import read_metric, wait_until


@asynccontextmanager
async def kept(jobs: Callable[[], list[Job]], pause_s: float = 0.05) -> AsyncIterator[Scheduler]:
    made = Scheduler(jobs, pause_s=pause_s)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def job(key: str, work: Callable[[], Awaitable[None]], due_s: float = 0.0) -> Job:
    return Job(key, due_s, work)


async def test_a_failing_job_is_tried_again_later_and_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "FAILURE_PAUSE_MAX_S", 0.2)
    tries: list[float] = []
    done: list[str] = []
    counted = read_metric("veilsum_job_failures_total")

    async def failing() -> None:
        tries.append(time.monotonic())
        raise ZeroDivisionError("a secret value")

    async def fine() -> None:
        done.append("fine")

    soon = job("good", fine, time.time() + 0.1)

    def jobs() -> list[Job]:
        return [job("bad", failing)] + ([] if done else [soon])

    with structlog.testing.capture_logs() as logs:
        async with kept(jobs):
            await wait_until(lambda: len(tries) >= 5 and bool(done))
    pauses_s = [after - before for before, after in itertools.pairwise(tries)]
    expected_s = [0.05, 0.1, 0.2, 0.2]
    assert [each["again_in_s"] for each in logs[:4]] == expected_s
    assert all(paused >= said - 0.01 for paused, said in zip(pauses_s, expected_s, strict=False))
    assert len(tries) < 8
    assert read_metric("veilsum_job_failures_total") == counted + len(tries)
    assert logs[0]["error"] == "ZeroDivisionError"
    assert "test_scheduler.py" in logs[0]["at"]
    assert "secret" not in str(logs)


async def test_a_look_that_fails_is_not_the_last() -> None:
    looks: list[str] = []
    done: list[str] = []

    async def fine() -> None:
        done.append("fine")

    def jobs() -> list[Job]:
        looks.append("look")
        if len(looks) == 1:
            raise ZeroDivisionError("a secret value")
        return [] if done else [job("good", fine)]

    with structlog.testing.capture_logs() as logs:
        async with kept(jobs):
            await wait_until(lambda: bool(done))
    assert [(each["of"], each["error"]) for each in logs] == [("looking", "ZeroDivisionError")]


async def test_the_pause_is_the_first_one_again_after_a_success_or_once_the_job_was_not_listed() -> None:
    tries: list[str] = []
    outcomes = ["fails", "fails", "succeeds", "fails", "fails", "is not listed", "fails", "fails"]

    async def work() -> None:
        tries.append("")
        if outcomes.pop(0) == "fails":
            raise ZeroDivisionError

    def jobs() -> list[Job]:
        if outcomes and outcomes[0] == "is not listed":
            outcomes.pop(0)
            return []
        return [job("a", work)] if outcomes else []

    with structlog.testing.capture_logs() as logs:
        async with kept(jobs, pause_s=0.01) as made:
            while outcomes:
                made.wake_up()
                await asyncio.sleep(0.005)
            await wait_until(lambda: len(logs) >= 6)
    assert [each["again_in_s"] for each in logs] == [0.01, 0.02] * 3


async def test_a_cancelled_scheduler_waits_until_its_jobs_have_ended() -> None:
    begun: list[str] = []
    ended: list[str] = []

    def ending(key: str, takes_s: float) -> Job:
        async def work() -> None:
            begun.append(key)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(takes_s)
                ended.append(key)

        return job(key, work)

    async with kept(lambda: [ending("quick", 0.0), ending("slow", 0.1)]):
        await wait_until(lambda: len(begun) == 2)
    assert ended == ["quick", "slow"]


async def test_a_slow_job_is_begun_once_and_holds_up_nobody() -> None:
    begun: list[str] = []
    release = asyncio.Event()

    async def slow() -> None:
        begun.append("slow")
        await release.wait()

    async def quick() -> None:
        begun.append("quick")

    def jobs() -> list[Job]:
        return (
            [] if release.is_set() else [job("slow", slow), *([] if "quick" in begun else [job("q", quick)])]
        )

    async with kept(jobs) as made:
        await wait_until(lambda: "quick" in begun)
        made.wake_up()
        await asyncio.sleep(0.05)
        assert begun == ["slow", "quick"]
        release.set()


async def test_the_clock_is_looked_at_again_although_nobody_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock may be set forward, so that a deadline an hour away passes soon."""
    monkeypatch.setattr(scheduler, "CLOCK_POLL_S", 0.02)
    ahead_s, done = 0.0, asyncio.Event()

    async def work() -> None:
        done.set()

    due_s = time.time() + 3600
    made = Scheduler(
        lambda: [] if done.is_set() else [job("a", work, due_s)], now=lambda: time.time() + ahead_s
    )
    task = asyncio.create_task(made.run())
    await asyncio.sleep(0.1)
    assert not done.is_set()
    ahead_s = 3600.0
    await asyncio.wait_for(done.wait(), 120)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_heavy_jobs_are_few_at_once_and_keep_no_light_one_waiting() -> None:
    begun: list[str] = []
    go = asyncio.Event()

    def busy(key: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            begun.append(key)
            await go.wait()

        return work

    found = [Job(f"heavy {n}", 0.0, busy(f"heavy {n}"), heavy=True) for n in range(5)]
    light = job("light", busy("light"))

    def jobs() -> list[Job]:
        return [each for each in (*found, light) if each.key not in begun]

    async with kept(jobs):
        await wait_until(lambda: "light" in begun)
        assert begun == ["heavy 0", "heavy 1", "light"]
        go.set()
        await wait_until(lambda: len(begun) == 6)
    assert sorted(begun[3:]) == ["heavy 2", "heavy 3", "heavy 4"]


async def test_a_job_of_another_process_is_tried_again_later_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "HELD_JOB_POLL_S", 0.05)
    tries: list[float] = []

    class Taken(Leases):
        """Held elsewhere at the first two tries."""

        def __init__(self) -> None:
            pass

        @asynccontextmanager
        async def hold_lease(self, key: str) -> AsyncIterator[bool]:
            del key
            tries.append(time.monotonic())
            yield len(tries) > 2

    async def failing() -> None:
        raise ZeroDivisionError

    made = Scheduler(lambda: [job("a", failing)], pause_s=20.0, leases=Taken())
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(made.run())
        await wait_until(lambda: logs)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert min(after - before for before, after in itertools.pairwise(tries)) > 0.04
    assert [each["again_in_s"] for each in logs] == [20.0]
