from collections.abc import AsyncIterator

import httpx
import pytest

from tests.service.driver import Party
from tests.service.pages.gallery import Gallery, browser, hang
from tests.service.serving import Server


@pytest.fixture
async def gallery(server: Server, party: Party) -> Gallery:
    return await hang(server, party)


@pytest.fixture
async def visitor(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(server) as client:
        yield client
