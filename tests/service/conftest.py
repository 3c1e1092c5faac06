from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.driver import Party, Server, running


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def party() -> Party:
    """Six members: two of them, and two decryptors, may miss."""
    return Party(tuple(f"m-{index}" for index in range(6)))


@pytest.fixture
async def formed(server: Server, party: Party) -> Party:
    await party.begin(server)
    return party
