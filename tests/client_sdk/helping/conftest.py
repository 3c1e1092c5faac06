from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client_sdk.helping.driver import People
from tests.service.helping.driver import HelperParty
from tests.service.serving import Server, running


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "data", max_wait_s=0.05) as server:
        yield server


@pytest.fixture
def party() -> HelperParty:
    """Twelve clients: a is 3, n_min 6."""
    return HelperParty(12)


@pytest.fixture
def people(tmp_path: Path, party: HelperParty, server: Server) -> Iterator[People]:
    made = People(tmp_path, party, server)
    yield made
    made.close()
