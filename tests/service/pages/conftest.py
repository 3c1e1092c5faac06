import asyncio
from collections.abc import AsyncIterator, Callable
from functools import cache

import httpx
import pytest

from tests.service.conftest import Past
from tests.service.pages.gallery import Gallery, browser, exhibitor, hang
from tests.support.party import Party
from tests.support.serving import Clock, Server, running

Hung = Callable[[], tuple[Past, Gallery]]


def public() -> Party:
    """Six members with a public head."""
    return exhibitor(after={"readers": "anyone"})


@pytest.fixture(scope="session")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Hung:
    """The gallery on SQLite and files, made at its first use: each test continues with a copy of it."""

    async def live() -> tuple[Past, Gallery]:
        folder, clock, party = tmp_path_factory.mktemp("gallery") / "data", Clock(), public()
        async with running(folder, clock) as server:
            gallery = await hang(server, party)
            return Past(folder, party, ahead_s=clock.ahead_s), gallery

    return cache(lambda: asyncio.run(live()))


@pytest.fixture
def make_party() -> Callable[[], Party]:
    return public


@pytest.fixture
def past(request: pytest.FixtureRequest, stores: str, hung: Hung, past: Past | None) -> Past | None:
    """The gallery's past, if a test uses the gallery."""
    return hung()[0] if stores == "embedded" and "gallery" in request.fixturenames else past


@pytest.fixture
def party(past: Past | None) -> Party:
    return public() if past is None else past.party.copy()


@pytest.fixture
async def gallery(server: Server, party: Party, past: Past | None, hung: Hung) -> Gallery:
    return await hang(server, party) if past is None else hung()[1]


@pytest.fixture
async def visitor(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(server) as client:
        yield client
