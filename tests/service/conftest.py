import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from service.telemetry import logs
from tests.service.access.provider import Provider
from tests.support import serving
from tests.support.party import SIX, Party
from tests.support.servers import ADMIN_URL, CREDENTIALS, Servers, bucket_served, execute, lacking
from tests.support.serving import Clock, Server, running, snapshot
from veilsum.protocol import round_spec

CHUNK_ELEMENTS = 8
"""So that short vectors have several chunks."""


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """A line for each request costs a tenth of its time: tests of the log configure it anew."""
    logs.configure(quiet=True)


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


@dataclass(frozen=True)
class Past:
    """What members had done when their coordinator stopped: formed a cohort, or finished a round as well."""

    folder: Path
    party: Party
    round_id: str = ""
    ahead_s: float = 0.0
    """Of the coordinator's clock."""


async def done(server: Server, party: Party) -> str:
    """A round from its opening to its result."""
    round_id = await party.open_round(server)
    assert (await party.play(server, round_id))["state"] == "done"
    await server.tidy(round_id)
    return round_id


@pytest.fixture(scope="session")
def pasts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Past]:
    """Either past on SQLite and files, lived when it is first asked for: each test goes on with a copy of it."""

    async def live(folder: Path, *, finished: bool) -> Past:
        party = Party(SIX)
        async with running(folder) as server:
            await party.begin(server)
            return Past(folder, party, await done(server, party) if finished else "")

    return cache(
        lambda finished: asyncio.run(live(tmp_path_factory.mktemp("past") / "data", finished=finished))
    )


@pytest.fixture
def past(request: pytest.FixtureRequest, stores: str, pasts: Callable[[bool], Past]) -> Past | None:
    """What a test begins with; None where it begins with nothing, or lives it itself on servers."""
    asked = {"formed", "finished"} & set(request.fixturenames)
    return pasts("finished" in asked) if asked and stores == "embedded" else None


@pytest.fixture
async def server(tmp_path: Path, past: Past | None) -> AsyncIterator[Server]:
    clock = Clock()
    if past is not None:
        snapshot(past.folder, tmp_path / "data")
        clock.ahead_s = past.ahead_s
    async with running(tmp_path / "data", clock) as server:
        yield server


@pytest.fixture
def party() -> Party:
    """Six members: two of them, and two decryptors, may miss."""
    return Party(SIX)


@pytest.fixture
async def formed(server: Server, party: Party, past: Past | None) -> Party:
    """Members whose cohort is formed."""
    if past is not None:
        return past.party.copy()
    await party.begin(server)
    return party


@pytest.fixture
async def finished(server: Server, formed: Party, past: Past | None) -> str:
    """A round of theirs that is done."""
    return await done(server, formed) if past is None else past.round_id


@pytest.fixture
def provider() -> Iterator[Provider]:
    """An issuer of operators' tokens."""
    made = Provider()
    yield made
    made.stop()
