from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.helping.driver import HelperParty
from tests.service.serving import Server, running


@pytest.fixture
async def server(tmp_path: Path, stores: str) -> AsyncIterator[Server]:
    async with running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def party() -> HelperParty:
    """Thirty clients: a is 7, n_min 10."""
    return HelperParty()
