"""Processes of members that a measurement drives: each says how far it has come, and goes on when it is told."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from client_sdk.errors import ClientError, PeerFault

Work = Callable[..., Awaitable[None]]
"""What a process does, with the connection to its parent as its last argument."""


@contextlib.contextmanager
def crew(work: Work, *arguments: Any) -> Iterator[Connection]:
    """A process at work, and the connection to it; it is killed when the block ends."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(work, arguments, there), daemon=True)
    process.start()
    there.close()  # or nobody would hear that the process has ended
    try:
        yield here
    finally:
        process.kill()
        process.join()


def tell(crews: Sequence[Connection], word: object) -> None:
    """Send every process a word, for which it waits to go on."""
    for each in crews:
        each.send(word)


def hear(crews: Sequence[Connection], word: str) -> list[Any]:
    """Wait until every process has come so far; what each says with it. ClientError for one that has failed."""
    heard = []
    for each in crews:
        try:
            said, value = each.recv()
        except EOFError:
            said, value = "failed", "the process has ended"
        if said != word:
            raise ClientError(f"a process of members failed: {value}")
        heard.append(value)
    return heard


def _run(work: Work, arguments: Sequence[Any], parent: Connection) -> None:
    async def working() -> None:
        await work(*arguments, parent)

    try:
        asyncio.run(working())
    except (PeerFault, ClientError, OSError) as error:
        parent.send(("failed", f"{type(error).__name__}: {error}"))
