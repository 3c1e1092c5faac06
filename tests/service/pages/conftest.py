import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.service.pages.gallery import Gallery, browser, exhibitor, hang
from tests.support.party import Party
from tests.support.serving import Clock, Server, running, snapshot


@dataclass(frozen=True)
class Played:
    """A gallery whose coordinator has stopped: its folder, its clock, and who took part."""

    folder: Path
    clock: Clock
    party: Party
    gallery: Gallery


def public() -> Party:
    """Six members whose head anyone may read."""
    return exhibitor(after={"readers": "anyone"})


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Played]:
    """The gallery on SQLite and files, played when it is first asked for: each test goes on with a copy of it."""

    async def play() -> Played:
        folder, clock, party = tmp_path_factory.mktemp("gallery") / "data", Clock(), public()
        async with running(folder, clock) as server:
            return Played(folder, clock, party, await hang(server, party))

    return cache(lambda: asyncio.run(play()))


@pytest.fixture
def hung(request: pytest.FixtureRequest, stores: str, played: Callable[[], Played]) -> Played | None:
    """What a test of the gallery begins with; None where it begins with nothing, or plays it itself on servers."""
    return played() if stores == "embedded" and "gallery" in request.fixturenames else None


@pytest.fixture
def party(hung: Played | None) -> Party:
    return public() if hung is None else hung.party.copy()


@pytest.fixture
async def server(tmp_path: Path, hung: Played | None) -> AsyncIterator[Server]:
    clock = Clock()
    if hung is not None:
        snapshot(hung.folder, tmp_path / "data")
        clock.ahead_s = hung.clock.ahead_s
    async with running(tmp_path / "data", clock) as server:
        yield server


@pytest.fixture
async def gallery(server: Server, party: Party, hung: Played | None) -> Gallery:
    return await hang(server, party) if hung is None else hung.gallery


@pytest.fixture
async def visitor(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(server) as client:
        yield client
