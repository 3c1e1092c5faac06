"""Processes of members for benchmarks: each reports its progress, and continues when it is told to."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from client_sdk.errors import ClientError, PeerFault

Work = Callable[..., Awaitable[None]]
"""The work of a process, whose last argument is the connection to its parent."""


@contextlib.contextmanager
def crew(work: Work, *arguments: Any) -> Iterator[Connection]:
    """Start a process, and yield the connection to it; the process is killed when the block ends."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(work, arguments, there), daemon=True)
    process.start()
    there.close()  # so that the end of the process closes the connection
    try:
        yield here
    finally:
        process.kill()
        process.join()


def tell(crews: Sequence[Connection], word: object) -> None:
    """Send every process a message to continue."""
    for each in crews:
        each.send(word)


def hear(crews: Sequence[Connection], word: str) -> list[Any]:
    """Wait until every process reports this word; return the values that they send with it. Raises ClientError if one failed."""
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
