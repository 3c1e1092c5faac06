"""The product's code that one honest round runs: functions, modules, and stack depth of own frames at httpx and at the journal."""

import asyncio
import inspect
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import structlog

from client_sdk.result import Result
from service.coordination.journal import Journal
from tests.support.lying_members import founded
from tests.support.party import Party
from tests.support.serving import coordinator, running

ROOT = Path(__file__).parents[1]
OURS = tuple(f"{ROOT / package}/" for package in ("client_sdk", "service", "training", "veilsum"))


class Entered:
    """The product's functions that ran."""

    def __init__(self) -> None:
        self.functions = set[tuple[str, str]]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and not code.co_name.startswith("<"):
            self.functions.add((code.co_filename, code.co_qualname))

    def counted(self) -> dict[str, int]:
        return {"functions": len(self.functions), "modules": len({file for file, _ in self.functions})}


@contextmanager
def profiling() -> Iterator[Entered]:
    """Profile every thread."""
    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def own_frames() -> int:
    """Return the number of the product's frames on the stack."""
    frame, found = inspect.currentframe(), 0
    while frame:
        found += frame.f_code.co_filename.startswith(OURS)
        frame = frame.f_back
    return found


@contextmanager
def depth_of(owner: type, name: str, depths: list[int]) -> Iterator[None]:
    """Record the number of own frames on the stack at each call of a method."""
    real = getattr(owner, name)

    def noting(*given: Any, **named: Any) -> Any:
        depths.append(own_frames())
        return real(*given, **named)

    setattr(owner, name, noting)
    try:
        yield
    finally:
        setattr(owner, name, real)


def honest_round(folder: Path) -> dict[str, int]:
    """Play an exact FFC round of four members over HTTP, from the first card to the verified results."""
    to_httpx, to_journal = list[int](), list[int]()
    with (
        profiling() as entered,
        coordinator(folder / "service") as stage,
        founded(stage, folder / "members", 4) as made,
        depth_of(httpx.Client, "send", to_httpx),
        depth_of(Journal, "append_events", to_journal),
    ):
        entered.functions.clear()
        made.play()
    assert all(isinstance(each, Result) for each in made.outcomes.values())
    depths = {"own_frames_to_httpx": max(to_httpx), "own_frames_to_the_journal": max(to_journal)}
    return {**entered.counted(), **depths}


async def opening(folder: Path) -> dict[str, int]:
    """Send `POST /rounds` for a formed cohort over REST, without running members."""
    party = Party(ids=tuple(f"m-{index}" for index in range(4)))
    async with running(folder) as server:
        await party.begin(server)
        with profiling() as entered:
            answer = await party.try_round(server)
    assert answer.status_code == 201
    return entered.counted()


def walked() -> dict[str, Any]:
    """Measure both."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "an_honest_round": honest_round(folder),
            "opening_a_round": asyncio.run(opening(folder / "opening")),
        }
