"""Group commit: what is asked for while one transaction runs goes into the next one, together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Batches(Generic[Item, Outcome]):
    """One piece of work at a time, over all items that have come meanwhile.

    Args:
        work: gives an outcome for each item, in order; what it raises is raised to all of them.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Outcome]]]) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        self._waiting: list[tuple[Item, asyncio.Future[Outcome]]] = []

    async def put(self, item: Item) -> Outcome:
        """The outcome of this item, once the batch that it is in is done."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        async with self._lock:
            if not future.done():
                await self._lead()
        return future.result()

    async def _lead(self) -> None:
        batch, self._waiting = self._waiting, []
        try:
            outcomes = await self._work([item for item, _ in batch])
        except BaseException as error:
            # Whoever leads may be cancelled; the others have only not been served.
            told = error if isinstance(error, Exception) else OSError("the write was interrupted: try again")
            for _, future in batch:
                future.set_exception(told)
                future.exception()  # seen, whoever still waits for it
            raise
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            future.set_result(outcome)
