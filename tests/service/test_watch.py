"""Long-polls: what asks somebody something wakes at once, and what asks nothing wakes the later, the more there are."""

import asyncio
import time

import pytest

from service.watch import FEW, LOOKS_PER_S, POLLS_PER_S, Watch, calm_s

LONG_S = 60.0


class Thing:
    def __init__(self) -> None:
        self.version, self.asked = 1, 1
        self.watch = Watch(lambda: self.version, lambda: self.asked)

    def changed(self, *, urgent: bool) -> None:
        self.version += 1
        self.asked = self.version if urgent else self.asked
        self.watch.notify()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_asks_nothing_waits_until_the_calm_is_over() -> None:
    thing = Thing()
    calm = asyncio.create_task(thing.watch.beyond(1, LONG_S, LONG_S))
    prompt = asyncio.create_task(thing.watch.beyond(1, LONG_S))
    await settled()
    thing.changed(urgent=False)
    await settled()
    assert (prompt.done(), calm.done()) == (True, False)
    thing.changed(urgent=True)
    assert await asyncio.wait_for(calm, LONG_S / 2) == 3


async def test_after_the_calm_any_change_is_told() -> None:
    thing = Thing()
    thing.changed(urgent=False)
    assert await asyncio.wait_for(thing.watch.beyond(1, LONG_S, 0.01), LONG_S / 2) == 2
    waiting = asyncio.create_task(thing.watch.beyond(2, LONG_S, 0.0))
    await settled()
    thing.changed(urgent=False)
    assert await asyncio.wait_for(waiting, LONG_S / 2) == 3


async def test_whoever_waits_no_longer_than_the_calm_is_answered_in_time() -> None:
    thing, begun = Thing(), time.monotonic()
    assert await asyncio.wait_for(thing.watch.beyond(1, 0.05, LONG_S), LONG_S / 2) == 1
    assert time.monotonic() - begun >= 0.05


async def test_nobody_waits_for_what_has_stopped() -> None:
    thing = Thing()
    waiting = [asyncio.create_task(thing.watch.beyond(1, LONG_S, calm)) for calm in (0.0, LONG_S)]
    await settled()
    thing.watch.stop()
    assert await asyncio.wait_for(asyncio.gather(*waiting), LONG_S / 2) == [1, 1]
    assert await asyncio.wait_for(thing.watch.beyond(1, LONG_S, LONG_S), LONG_S / 2) == 1


@pytest.mark.parametrize("waiting", [3, 50, 1000])
def test_all_of_them_together_ask_at_a_bounded_rate(waiting: int) -> None:
    assert waiting / calm_s(waiting) == POLLS_PER_S


async def test_of_a_crowd_that_looks_a_few_are_told_at_once_and_all_what_is_urgent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    thing, crowd = Thing(), 600
    looking = [asyncio.create_task(thing.watch.beyond(1, LONG_S)) for _ in range(crowd)]
    await settled()
    thing.changed(urgent=False)
    await settled()
    at_once = sum(each.done() for each in looking)
    assert FEW < at_once < crowd / 4
    now_s += 0.2
    await settled()
    assert at_once + 0.1 * LOOKS_PER_S < sum(each.done() for each in looking) < crowd
    monkeypatch.undo()
    thing.changed(urgent=True)
    assert set(await asyncio.wait_for(asyncio.gather(*looking), LONG_S / 2)) == {2, 3}
    alone = asyncio.create_task(thing.watch.beyond(3, LONG_S))  # the crowd is gone
    await settled()
    thing.changed(urgent=False)
    assert await asyncio.wait_for(alone, LONG_S / 2) == 4
