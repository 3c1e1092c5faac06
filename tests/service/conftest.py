import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import uvloop

from service.storage.database import Database
from service.storage.stores import open_stores
from service.telemetry import logs
from tests.service.access.provider import Provider
from tests.support import serving
from tests.support.clients import api_document
from tests.support.party import FOUR, HOLD, SIX, WITHHOLDING, Party
from tests.support.servers import ADMIN_URL, CREDENTIALS, Servers, bucket_served, execute, lacking
from tests.support.serving import Clock, Server, running, settings_of, snapshot
from veilsum.protocol import round_spec

CHUNK_ELEMENTS = 16
"""Elements of a chunk, so that short vectors have several chunks."""


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Turn off logging, which takes a tenth of a request's time: tests of the log turn it on again."""
    logs.configure_logs(quiet=True)


@pytest.fixture
def logged() -> Iterator[None]:
    """Log to standard output during a test."""
    logs.configure_logs()
    yield
    logs.configure_logs(quiet=True)


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """The API document."""
    return api_document()


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


@pytest.fixture(scope="session")
def databases(endpoint: str) -> Iterator[list[str]]:
    """The databases that tests have left empty."""
    emptied = list[str]()
    yield emptied
    asyncio.run(Servers(endpoint, emptied).drop())


@pytest.fixture
async def servers(endpoint: str, databases: list[str]) -> AsyncIterator[Servers]:
    """Empty stores on PostgreSQL and S3."""
    try:
        await execute("SELECT 1")
    except OSError as error:
        lacking(f"no PostgreSQL answers on {ADMIN_URL}: {error}")
    found = Servers(endpoint, databases)
    yield found
    await found.empty()


@pytest.fixture
def on_servers(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every coordinator of the test on PostgreSQL and S3."""
    monkeypatch.setattr(serving, "SERVERS", servers)


@pytest.fixture
async def database(tmp_path: Path, stores: str) -> AsyncIterator[Database]:
    """An empty database of a coordinator."""
    del stores
    async with open_stores(await settings_of(tmp_path)) as (made, _):
        yield made


def on_both(item: pytest.Item) -> bool:
    """Whether a test is run on both pairs of stores: if it is marked so, and with TEST_STORES=both, as in `make both-stores`, any that is not
    marked for files alone.
    """
    marked = item.get_closest_marker
    return bool(marked("both_stores") or (os.environ.get("TEST_STORES") == "both" and not marked("on_files")))


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests without sockets on the event loop that uvicorn takes, which is quicker, but closes only once each connection is closed."""
    asked = getattr(item, "fixturenames", ())
    if {"server", "stopped"}.isdisjoint(asked) or "servers" in asked or on_both(item):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stores" in metafunc.fixturenames:
        both = on_both(metafunc.definition)
        metafunc.parametrize("stores", ["embedded", "servers"] if both else ["embedded"], indirect=True)


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> str:
    """Run every coordinator of the test on SQLite and files, or on PostgreSQL and S3."""
    if request.param == "servers":
        request.getfixturevalue("on_servers")
    return str(request.param)


@pytest.fixture
def six() -> None:
    """Give the test six members: two of them, and two decryptors, may drop out."""


@pytest.fixture
def make_party(request: pytest.FixtureRequest) -> Callable[[], Party]:
    """Makes the test's party: of as few members as a round needs, unless it asks for `six`."""
    return of_six if "six" in request.fixturenames else of_four


def of_four() -> Party:
    return Party(FOUR)


def of_six() -> Party:
    return Party(SIX)


def withholding() -> Party:
    """Six members (a = 1, g = 4, so m = 5 with a margin of 1) that hold different classes."""
    return Party(SIX, classes=5, hold=HOLD, question={**WITHHOLDING, "members_min": 5})


@dataclass(frozen=True)
class Past:
    """What members had done when their coordinator stopped: sent their cards, formed a cohort, finished a round, or counted holders."""

    folder: Path
    party: Party
    round_id: str = ""
    ahead_s: float = 0.0
    """Offset of the coordinator's clock."""


Pasts = Callable[[str, Callable[[], Party]], Past]
PASTS = ("carded", "formed", "finished", "counted")
"""Fixtures that begin with a past. The last of them that a test requests names its past."""


async def done(server: Server, party: Party) -> str:
    """Play a round from its opening to its result."""
    round_id = await party.done(server)
    await server.tidy(round_id)
    return round_id


@pytest.fixture(scope="session")
def pasts(tmp_path_factory: pytest.TempPathFactory) -> Pasts:
    """Each past on SQLite and files, played at its first use: each test continues with a copy of it."""

    async def live(folder: Path, name: str, party: Party) -> Past:
        async with running(folder) as server:
            await party.send_cards(server)
            if name == "carded":
                return Past(folder, party)
            await party.take_manifest(server)
            match name:
                case "finished":
                    return Past(folder, party, await done(server, party))
                case "counted":
                    return Past(folder, party, await party.count(server))
        return Past(folder, party)

    @cache
    def played(name: str, make: Callable[[], Party]) -> Past:
        playing = live(tmp_path_factory.mktemp("past") / "data", name, make())
        with ThreadPoolExecutor(1) as thread:  # a test's own loop may be running
            return thread.submit(asyncio.run, playing).result()

    return played


@pytest.fixture
def stopped(tmp_path: Path, pasts: Pasts, make_party: Callable[[], Party]) -> Callable[[str], Past]:
    """Copy a past, on SQLite and files, for a test that starts its coordinator itself."""

    def copied(name: str) -> Past:
        past = pasts(name, make_party)
        return replace(past, folder=snapshot(past.folder, tmp_path / "data"), party=past.party.copy())

    return copied


@pytest.fixture
def past(
    request: pytest.FixtureRequest, stores: str, pasts: Pasts, make_party: Callable[[], Party]
) -> Past | None:
    """The past with which a test begins; None if it begins with nothing, or plays its past itself on servers."""
    asked = [name for name in PASTS if name in request.fixturenames]
    if not asked or stores != "embedded":
        return None
    return pasts(asked[-1], withholding if asked[-1] == "counted" else make_party)


@pytest.fixture
async def server(tmp_path: Path, past: Past | None) -> AsyncIterator[Server]:
    clock = Clock()
    if past is not None:
        snapshot(past.folder, tmp_path / "data")
        clock.ahead_s = past.ahead_s
    async with running(tmp_path / "data", clock) as server:
        yield server


@pytest.fixture
def party(make_party: Callable[[], Party]) -> Party:
    return make_party()


@pytest.fixture
async def carded(server: Server, party: Party, past: Past | None) -> Party:
    """Members that have all sent their cards, and have not paired."""
    if past is not None:
        return past.party.copy()
    await party.send_cards(server)
    return party


@pytest.fixture
async def formed(server: Server, party: Party, past: Past | None) -> Party:
    """Members with a formed cohort."""
    if past is not None:
        return past.party.copy()
    await party.begin(server)
    return party


@pytest.fixture
async def finished(server: Server, formed: Party, past: Past | None) -> str:
    """A finished round of these members."""
    return await done(server, formed) if past is None else past.round_id


@pytest.fixture
async def counted(server: Server, past: Past | None) -> tuple[Party, str]:
    """Members that have counted their classes' holders, and that round."""
    if past is not None:
        return past.party.copy(), past.round_id
    party = withholding()
    await party.begin(server)
    return party, await party.count(server)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """An issuer of operators' tokens."""
    made = Provider()
    yield made
    made.stop()
