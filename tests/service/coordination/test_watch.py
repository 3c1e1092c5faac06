"""Long polls: a change that asks a member something wakes them at once; others wake them later, the more polls there are."""

import asyncio

import pytest

from service.coordination.watch import PACED_WATCHERS_PER_S, POLLS_PER_S, UNPACED_WATCHERS, Watch, calm_s

LONG_S = 60.0


class Thing:
    def __init__(self) -> None:
        self.version, self.asked = 1, 1
        self.watch = Watch(lambda: self.version, lambda: self.asked)

    def changed(self, *, urgent: bool) -> None:
        self.version += 1
        self.asked = self.version if urgent else self.asked
        self.watch.notify_waiters()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


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
    looking = [asyncio.create_task(thing.watch.wait_beyond(1, LONG_S)) for _ in range(crowd)]
    await settled()
    thing.changed(urgent=False)
    await settled()
    at_once = sum(each.done() for each in looking)
    assert UNPACED_WATCHERS < at_once < crowd / 4
    now_s += 0.2
    await settled()
    assert at_once + 0.1 * PACED_WATCHERS_PER_S < sum(each.done() for each in looking) < crowd
    monkeypatch.undo()
    thing.changed(urgent=True)
    assert set(await asyncio.wait_for(asyncio.gather(*looking), LONG_S / 2)) == {2, 3}
    alone = asyncio.create_task(thing.watch.wait_beyond(3, LONG_S))  # the crowd is gone
    await settled()
    thing.changed(urgent=False)
    assert await asyncio.wait_for(alone, LONG_S / 2) == 4
