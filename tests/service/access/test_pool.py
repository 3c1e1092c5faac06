"""Which connections a pool keeps, and which it ends: with a clock, and of a real server."""

import asyncio
import itertools
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.access import accepting
from service.access import pool as pool_module
from service.access.connections import Connection
from service.access.pool import PROBE_CONNECTIONS, SIGNER_REMEMBERED_S, Place, Pool
from tests.support.authority import Authority
from tests.support.party import Party
from tests.support.serving import Server, running, served, wait_until

MOST = 160
AT_ONE_ADDRESS, STRANGERS = MOST // 16, MOST * 3 // 4
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHos"


class Crowd:
    """Connections of a pool, by the order in which they came; `gone` are those that it ended."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.gone = pool, list[int]()
        self._number = 0

    def come(self, host: str, *, head: bool = False) -> Place | None:
        place = self.pool.take(host, partial(self.gone.append, self._number))
        self._number += 1
        if place is not None and head:
            place.note_head()
        return place


@pytest.fixture
def crowd() -> Crowd:
    return Crowd(Pool(MOST))


def test_of_an_address_s_share_the_oldest_without_a_head_goes(crowd: Crowd) -> None:
    for _ in range(AT_ONE_ADDRESS + 3):
        assert crowd.come("192.0.2.1") is not None
    assert crowd.gone == [0, 1, 2]
    assert crowd.come("192.0.2.2") is not None
    assert crowd.gone == [0, 1, 2]


@pytest.mark.parametrize("place", ["admitted", "signed", "answered", "answered and signed"])
def test_a_connection_counts_for_its_address_while_no_request_of_it_is_admitted(
    crowd: Crowd, place: str
) -> None:
    for _ in range(AT_ONE_ADDRESS):
        taken = crowd.come("192.0.2.1", head=True)
        assert taken is not None
        taken.note_admission(signed="signed" in place)
        if "answered" in place:
            taken.await_request()
    assert (crowd.come("192.0.2.1") is None) == (place == "answered")
    assert crowd.gone == []


def test_networks_of_ipv6_have_shares(crowd: Crowd) -> None:
    taken = [crowd.come(f"2001:db8:0:{number:x}::1", head=True) for number in range(STRANGERS)]
    assert [place is not None for place in taken] == [
        number < 4 * AT_ONE_ADDRESS for number in range(STRANGERS)
    ]
    site = [
        crowd.come(f"2001:db8:0:{number << 8:x}::1", head=True) for number in range(1, 5 * AT_ONE_ADDRESS)
    ]
    assert sum(place is not None for place in site) == 4 * AT_ONE_ADDRESS, (
        "eight times an address's for the /48"
    )


def test_in_a_full_pool_the_oldest_without_a_head_goes(crowd: Crowd) -> None:
    crowd.come("192.0.2.1", head=True)
    for number in range(STRANGERS + 1):
        assert crowd.come(f"198.51.100.{number}") is not None
    assert crowd.gone == [1, 2]
    assert len(crowd.pool.headless) == STRANGERS - 1 == len(crowd.pool.open) - 1


def test_the_only_place_of_a_pool_is_for_any_address() -> None:
    places = [Crowd(Pool(most)).come("192.0.2.1") for most in (1, 2)]
    assert [place is not None and place.for_probes for place in places] == [False, False]


def test_a_pool_of_requests_keeps_places_for_signers_and_probes(crowd: Crowd) -> None:
    clock_s = 0.0
    crowd.pool.clock = lambda: clock_s
    signer = crowd.come("192.0.2.1", head=True)
    assert signer is not None
    signer.note_admission(signed=True)
    strangers = [crowd.come(f"198.51.100.{number}", head=True) for number in range(STRANGERS)]
    assert [place for place in strangers if place is None or place.for_probes] == [strangers[-1]]
    while (known := crowd.come("192.0.2.1", head=True)) is not None and not known.for_probes:
        known.note_admission(signed=True)
    assert len(crowd.pool.open) == MOST + 1
    clock_s = SIGNER_REMEMBERED_S
    signer.release()
    later = crowd.come("192.0.2.1", head=True)
    assert later is not None
    assert later.for_probes, "it has sent nothing for long"
    while crowd.come("203.0.113.1", head=True) is not None:
        pass
    assert len(crowd.pool.open) <= MOST + PROBE_CONNECTIONS
    assert crowd.gone == []


def test_of_signers_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "SIGNERS_REMEMBERED_MAX", 2)
    crowd, hosts = Crowd(Pool(4)), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]

    def comes(host: str) -> Place:
        place = crowd.come(host, head=True)
        assert place is not None
        return place

    for host in (*hosts[:2], hosts[0], hosts[2]):
        signer = comes(host)
        signer.note_admission(signed=True)
        signer.release()
    for number in range(3):
        comes(f"198.51.100.{number}")
    for host, remembered in zip(hosts, (True, False, True), strict=True):
        again = comes(host)
        assert again.for_probes != remembered
        again.release()


def test_a_proxy_s_connections_are_many_callers() -> None:
    crowd = Crowd(Pool(MOST, lambda host: host == "10.0.0.1"))
    assert all(crowd.come("10.0.0.1", head=True) for _ in range(MOST))


def test_places_that_are_given_back_leave_nothing(crowd: Crowd) -> None:
    for host in ("192.0.2.1", "2001:db8::1"):
        for signed in (False, True):
            place = crowd.come(host, head=True)
            assert place is not None
            place.note_admission(signed=signed)
            place.await_request()
            for _ in range(2):
                place.release()
            place.await_request()
    assert (len(crowd.pool.open), len(crowd.pool.headless), len(crowd.pool.waiting)) == (0, 0, 0)


@asynccontextmanager
async def pooled(folder: Path, pool: Pool, **config: object) -> AsyncIterator[tuple[Server, str]]:
    async with running(folder) as server, served(server, pool, http=Connection, **config) as url:
        yield server, url


@asynccontextmanager
async def held(url: str, hosts: list[str], sent: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Hold a connection from each of these addresses that has sent this."""
    parts, writers = urlsplit(url), list[asyncio.StreamWriter]()
    try:
        for host in hosts:
            _, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=(host, 0))
            writers.append(writer)
            writer.write(sent)
        yield writers
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("many", [False, True], ids=["one address", "many addresses"])
async def test_held_connections_keep_nobody_out(tmp_path: Path, *, many: bool) -> None:
    pool, hosts = Pool(64), [f"127.0.0.{2 + number * many}" for number in range(100)]
    async with (
        pooled(tmp_path, pool) as (_, url),
        httpx.AsyncClient(base_url=url) as other,
        held(url, hosts, HALF_HEAD),
    ):
        for _ in range(3):
            assert (await other.get("/readyz")).status_code == 200
            async with httpx.AsyncClient(base_url=url) as another:
                assert (await another.get("/v1/coordinator")).status_code == 200
        assert len(pool.open) <= (48 if many else 4 + 3)


async def test_a_handshake_that_does_not_come_holds_a_place_for_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert accepting.HANDSHAKE_TIMEOUT_S <= 10
    monkeypatch.setattr(accepting, "HANDSHAKE_TIMEOUT_S", 1.0)
    authority, pool = Authority(tmp_path, "tests"), Pool(320)
    certificate, key = authority.issue("server")
    trusting = ssl.create_default_context(cafile=str(authority.path))
    async with (
        pooled(tmp_path / "data", pool, ssl_certfile=certificate, ssl_keyfile=key) as (_, url),
        held(url, ["127.0.0.2"] * 30, b"\x16\x03\x01"),
        httpx.AsyncClient(base_url=url, verify=trusting) as other,
    ):
        assert len(pool.open) >= 20, "counted when they are accepted"
        assert (await other.get("/readyz")).status_code == 200
        await wait_until(lambda: len(pool.open) <= 1)


async def test_a_full_pool_answers_probes_and_who_signed_before(tmp_path: Path, party: Party) -> None:
    async with pooled(tmp_path, Pool(8)) as (server, url):
        round_id, auth = await party.begun(server), server.client.auth
        asked = f"/v1/rounds/{round_id}/requests/m-0"
        waiting = f"GET /v1/rounds/{round_id}?after=99&wait_s=20 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        async with (
            held(url, [f"127.0.0.{10 + number}" for number in range(6)], waiting) as crowd,
            httpx.AsyncClient(base_url=url, auth=auth) as member,
            httpx.AsyncClient(base_url=url) as probe,
        ):
            await wait_until(lambda: len(server.app.state.limits._under_way) >= 7)
            assert (await member.get(asked)).status_code == 503
            assert [(await probe.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
            assert (await probe.get("/v1/coordinator")).status_code == 503
            crowd.pop().close()
            async with asyncio.timeout(60):
                while (await member.get(asked)).status_code != 200:  # noqa: ASYNC110 - no event to await
                    await asyncio.sleep(0.01)
            async with httpx.AsyncClient(base_url=url, auth=auth) as returning:
                assert (await returning.get(asked)).status_code == 200


async def test_without_a_descriptor_the_server_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "NO_DESCRIPTOR_PAUSE_S", 0.05)
    accept, failed_s = socket.socket.accept, list[float]()

    def failing(listener: socket.socket) -> object:
        if len(failed_s) < 3:
            failed_s.append(time.monotonic())
            raise OSError(24, "Too many open files")
        return accept(listener)

    async with pooled(tmp_path, Pool(8)) as (_, url):
        monkeypatch.setattr(socket.socket, "accept", failing)
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/healthz")).status_code == 200
    assert min(after - before for before, after in itertools.pairwise(failed_s)) > 0.04


async def test_a_server_that_ends_ends_the_handshakes_that_are_under_way(tmp_path: Path) -> None:
    authority, pool = Authority(tmp_path, "tests"), Pool(8)
    certificate, key = authority.issue("server")
    async with pooled(tmp_path / "data", pool, ssl_certfile=certificate, ssl_keyfile=key) as (_, url):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        await wait_until(lambda: pool.open)
    assert not pool.open
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 120) == b""
    writer.close()
