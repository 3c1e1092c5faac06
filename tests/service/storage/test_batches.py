import asyncio

from service.storage.database import Batches


async def test_a_failure_is_everybody_s_and_the_next_batch_starts_afresh() -> None:
    fail = True

    async def work(items: list[int]) -> list[None]:
        await asyncio.sleep(0)
        if fail:
            raise OSError("full")
        return [None] * len(items)

    batches = Batches(work)
    outcomes = await asyncio.gather(*(batches.put_item(item) for item in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["full"] * 3
    fail = False
    await batches.put_item(1)


async def test_a_caller_that_goes_away_takes_nothing_from_the_others() -> None:
    began, done = asyncio.Event(), list[int]()

    async def work(items: list[int]) -> list[None]:
        began.set()
        await asyncio.sleep(0.05)
        done.extend(items)
        return [None] * len(items)

    batches = Batches(work)
    waiting = [asyncio.create_task(batches.put_item(item)) for item in range(3)]
    await began.wait()
    waiting[0].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None, None]
    assert done == [0, 1, 2]


async def test_items_that_come_during_a_batch_make_the_next_one() -> None:
    batches_seen, going_on = list[list[int]](), asyncio.Event()

    async def work(items: list[int]) -> list[Exception | None]:
        batches_seen.append(items.copy())
        await going_on.wait()
        return [OSError(str(item)) if item % 2 else None for item in items]

    batches = Batches(work)
    first = asyncio.create_task(batches.put_item(0))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(batches.put_item(item)) for item in (1, 2, 3)]
    await asyncio.sleep(0.01)
    going_on.set()
    outcomes = await asyncio.gather(first, *later, return_exceptions=True)
    assert batches_seen == [[0], [1, 2, 3]]
    assert [str(outcome) for outcome in outcomes] == ["None", "1", "None", "3"]
