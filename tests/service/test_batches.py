import asyncio

import pytest

from service.batches import Batches


async def test_what_comes_meanwhile_goes_together() -> None:
    seen: list[list[int]] = []

    async def double(items: list[int]) -> list[int]:
        seen.append(items)
        await asyncio.sleep(0.01)
        return [2 * item for item in items]

    batches = Batches(double)
    assert await asyncio.gather(*(batches.put(item) for item in range(5))) == [0, 2, 4, 6, 8]
    assert seen == [[0, 1, 2, 3, 4]] or seen == [[0], [1, 2, 3, 4]]
    assert await batches.put(7) == 14


async def test_a_failure_is_everybody_s_and_the_next_batch_starts_afresh() -> None:
    fail = True

    async def work(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        if fail:
            raise OSError("full")
        return items

    batches = Batches(work)
    outcomes = await asyncio.gather(*(batches.put(item) for item in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["full"] * 3
    fail = False
    assert await batches.put(1) == 1


async def test_a_leader_that_goes_away_leaves_the_others_an_answer() -> None:
    began = asyncio.Event()

    async def work(items: list[int]) -> list[int]:
        began.set()
        await asyncio.sleep(0.05)
        return items

    batches = Batches(work)
    waiting = [asyncio.create_task(batches.put(item)) for item in range(3)]
    await began.wait()
    waiting[0].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(outcome in {1, 2} or isinstance(outcome, OSError) for outcome in outcomes[1:])
    with pytest.raises(TypeError):
        await Batches(work).put()  # type: ignore[call-arg]  # nothing is waiting for ever
