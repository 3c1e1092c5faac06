import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.service.access.provider import Provider
from tests.support import serving
from tests.support.party import SIX, Party
from tests.support.servers import ADMIN_URL, CREDENTIALS, Servers, bucket_served, execute, lacking
from tests.support.serving import Server, running
from veilsum.protocol import round_spec

CHUNK_ELEMENTS = 8
"""So that short vectors have several chunks."""


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS)


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in CREDENTIALS.items():
            patched.setenv(name, value)
        with bucket_served() as found:
            yield found


@pytest.fixture
async def servers(endpoint: str) -> AsyncIterator[Servers]:
    """PostgreSQL and S3, empty."""
    try:
        await execute("SELECT 1")
    except OSError as error:
        lacking(f"no PostgreSQL answers on {ADMIN_URL}: {error}")
    found = Servers(endpoint)
    yield found
    await found.drop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both pairs of stores where a module asks for it by `ON_BOTH`, or everywhere by TEST_STORES=both, which `make both-stores` sets."""
    if "stores" in metafunc.fixturenames:
        both = os.environ.get("TEST_STORES") == "both" or getattr(metafunc.module, "ON_BOTH", False)
        metafunc.parametrize("stores", ["embedded", "servers"] if both else ["embedded"], indirect=True)


@pytest.fixture
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every coordinator of the test runs on SQLite and files, or on PostgreSQL and S3."""
    if request.param == "servers":
        monkeypatch.setattr(serving, "SERVERS", request.getfixturevalue("servers"))
    return str(request.param)


@pytest.fixture
async def server(tmp_path: Path, stores: str) -> AsyncIterator[Server]:
    async with running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def party() -> Party:
    """Six members: two of them, and two decryptors, may miss."""
    return Party(SIX)


@pytest.fixture
async def formed(server: Server, party: Party) -> Party:
    await party.begin(server)
    return party


@pytest.fixture
def provider() -> Iterator[Provider]:
    """An issuer of operators' tokens."""
    made = Provider()
    yield made
    made.stop()
