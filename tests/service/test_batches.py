import asyncio

import pytest

from service.storage.database import Batches


async def test_a_failure_is_everybody_s_and_the_next_batch_starts_afresh() -> None:
    fail = True

    async def work(items: list[int]) -> list[None]:
        await asyncio.sleep(0)
        if fail:
            raise OSError("full")
        return [None] * len(items)

    batches = Batches(work)
    outcomes = await asyncio.gather(*(batches.put(item) for item in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["full"] * 3
    fail = False
    await batches.put(1)


async def test_a_leader_that_goes_away_leaves_the_others_an_answer() -> None:
    began = asyncio.Event()

    async def work(items: list[int]) -> list[None]:
        began.set()
        await asyncio.sleep(0.05)
        return [None] * len(items)

    batches = Batches(work)
    waiting = [asyncio.create_task(batches.put(item)) for item in range(3)]
    await began.wait()
    waiting[0].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(outcome is None or isinstance(outcome, OSError) for outcome in outcomes[1:])
    with pytest.raises(TypeError):
        await Batches(work).put()  # type: ignore[call-arg]  # nothing is waiting for ever
