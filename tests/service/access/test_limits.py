"""Callers with too many requests, in the app and on simulated clocks."""

import asyncio
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from fastapi import Request
from sqlalchemy import func, select

from service.http import callers
from service.http.callers import ANONYMOUS_CALLER, Allowance, Caller, Limits, Role, TooMany
from service.storage.tables import nonces
from tests.support.clients import KEYS
from tests.support.party import Party
from tests.support.serving import Server, Ticking, few, running, wait_until
from veilsum.protocol import rest

MEMBER = Caller(Role.MEMBER, "m-0", "ab" * 32)


def at(host: str | None) -> Request:
    return Request({"type": "http", "client": (host, 1) if host is not None else None})


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def found(clock: Ticking) -> Limits:
    return Limits(Allowance(2.0, 4, 2), Allowance(1.0, 3, 1), clock)


def charged(limits: Limits, caller: Caller, *hosts: str | None) -> int:
    """Send a request from each of these hosts; return how many are taken."""
    taken = 0
    for host in hosts:
        with suppress(TooMany):
            limits.charge_request(caller, at(host))
            taken += 1
    return taken


def test_a_bucket_is_full_at_first_and_fills_at_its_rate(clock: Ticking, found: Limits) -> None:
    for later_s, taken in ((0.0, 4), (0.5, 1), (3600.0, 4)):  # what is refused takes nothing
        clock.now_s += later_s
        assert charged(found, MEMBER, *["192.0.2.1"] * 7) == taken
    with pytest.raises(TooMany, match=f"member m-0 {'ab' * 32} .*wait 1 s"):
        found.charge_request(MEMBER, at("192.0.2.1"))


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1"),
        ("fe80::1%eth0", "fe80::2", "fe81::1"),
        (None, None, "not an address"),
    ],
)
def test_a_site_is_one_caller(found: Limits, one: str | None, same: str | None, other: str) -> None:
    assert charged(found, ANONYMOUS_CALLER, one, same, one, same, other) == 4
    with pytest.raises(TooMany, match=r"^too-many-requests: address "):
        found.charge_request(ANONYMOUS_CALLER, at(same))
    assert charged(found, MEMBER, one) == 1


@pytest.mark.parametrize(("prefix", "most"), [("2001:db8:0:{:x}::1", 12), ("2001:db8:0:{:x}00::1", 24)])
def test_a_network_of_many_addresses_is_few_callers(found: Limits, prefix: str, most: int) -> None:
    """A /56 may do what four addresses may, and a /48 what eight may."""
    hosts, under_way = [prefix.format(number) for number in range(256)], 0
    assert charged(found, ANONYMOUS_CALLER, *hosts) == most
    with ExitStack() as open_:
        for host in hosts:
            with suppress(TooMany):
                open_.enter_context(found.under_way(ANONYMOUS_CALLER, at(host)))
                under_way += 1
    assert 3 * under_way == most
    assert charged(found, ANONYMOUS_CALLER, "2001:db8:1::1") == 1


def test_callers_without_a_name_leave_a_share_to_those_with_one(clock: Ticking, found: Limits) -> None:
    hosts = [f"192.0.2.{number}" for number in range(40)]
    assert charged(found, ANONYMOUS_CALLER, *hosts) == 30
    assert charged(found, MEMBER, "192.0.2.200") == 1
    clock.now_s += 60
    for number in range(7):
        found.account_for(ANONYMOUS_CALLER, at(f"192.0.2.{number}"))(1.0)
    assert charged(found, ANONYMOUS_CALLER, "192.0.2.200") == 0
    assert charged(found, MEMBER, "192.0.2.200") == 1


def test_members_of_one_name_in_two_federations_are_two(found: Limits) -> None:
    with found.under_way(MEMBER, at("x")), found.under_way(MEMBER, at("x")):
        with pytest.raises(TooMany, match="has 2 requests"), found.under_way(MEMBER, at("y")):
            pass
        with found.under_way(Caller(Role.MEMBER, "m-0", "cd" * 32), at("x")):
            pass
    assert not found._under_way
    with found.under_way(MEMBER, at("x")):
        pass


def test_a_flood_of_addresses_is_forgotten(clock: Ticking) -> None:
    found = Limits(Allowance(2.0, 4, 2), Allowance(1000.0, 3000, 1), clock)
    for second in range(4):
        clock.now_s = 100.0 + 2 * second
        for each in range(callers._FORGET_FROM - 1):
            found.charge_request(ANONYMOUS_CALLER, at(f"10.{second}.{each // 256}.{each % 256}"))
    assert len(found._full_s) < 2 * callers._FORGET_FROM


async def test_a_stranger_s_flood_is_refused_and_costs_nobody_else(tmp_path: Path, party: Party) -> None:
    async with running(tmp_path, limits=few(3)) as server, server.anonymous() as nobody:
        round_id = await party.begun(server)
        path = f"/v1/rounds/{round_id}"
        *_, refused = [await nobody.get(path) for _ in range(4)]
        assert refused.json()["cause"] == "too-many-requests"
        assert "address 127.0.0.1" in refused.json()["detail"]
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        # A caller that proves its identity continues from the same address; a false claim counts towards the address.
        member = f"{path}/requests/m-0"
        assert (await server.client.get(member)).status_code == 200
        forged = server.signing("m-0", KEYS["m-1"])
        assert [(await forged.get(member)).status_code for _ in range(3)] == [429] * 3
        guessed = [
            await nobody.get(f"{path}/result/sums", headers={"authorization": f"Bearer {n}"}) for n in "ab"
        ]
        assert [each.status_code for each in guessed] == [429] * 2
        assert (await server.client.get(member)).status_code == 200
        for machine in (rest.HEALTH_PATH, rest.READY_PATH, rest.METRICS_PATH):
            assert (await nobody.get(machine)).status_code == 200


async def test_one_member_s_flood_is_its_own(tmp_path: Path, party: Party) -> None:
    async with running(tmp_path, limits=few(caller=30)) as server:
        round_id = await party.begun(server)

        def asking(member: str) -> str:
            return f"/v1/rounds/{round_id}/requests/{member}"

        sent = (await server.client.get(asking("m-0"))).request.headers
        async with server.anonymous() as nobody:  # whoever repeats its request uses its share
            while (refused := await nobody.get(asking("m-0"), headers=sent)).status_code == 200:
                pass
        assert refused.json()["detail"].startswith(f"member m-0 {party.federation}")
        statuses = [(await server.client.get(asking(member))).status_code for member in ("m-0", "m-1")]
        assert statuses == [429, 200]


async def count(server: Server) -> int:
    return int(await server.coordinator.database.read_value(select(func.count()).select_from(nonces)))


async def test_what_is_refused_for_its_rate_writes_no_nonce(tmp_path: Path) -> None:
    """Nor do simultaneous requests: a check before the write would let all of them in."""
    party = Party(("m-0", "m-1", "m-2"), readers=("m-0",))
    async with running(tmp_path) as server:
        await party.begin(server)
        path = f"/v1/rounds/{await party.done(server)}/result/sums"
        server.app.state.limits = few(caller=10)
        reader, other = (server.signing(member, KEYS[member]) for member in ("m-0", "m-1"))
        for taken in (10, 0):
            answers = await asyncio.gather(*(reader.get(path) for _ in range(15)))
            assert [answer.status_code for answer in answers].count(200) == taken
        assert await count(server) == 10
        # What a reader alone may read is refused unwritten, and on the address's account.
        assert (await other.get(path)).status_code == 403
        assert await count(server) == 10


async def test_where_a_signature_may_be_left_out_a_member_has_its_own_limits_and_no_one_else_s(
    tmp_path: Path, party: Party
) -> None:
    async with running(tmp_path, limits=few(12, 20)) as server:
        await party.begin(server)
        path = f"/v1/cohorts/{party.cohort}"
        member, forged = server.signing("m-0", KEYS["m-0"]), server.signing("m-1", KEYS["m-0"])
        async with server.anonymous() as nobody:
            assert {(await forged.get(path)).status_code for _ in range(4)} == {200}
            # Unproven requests used up the address's allowance; a caller with a proof continues.
            while (refused := await nobody.get(path)).status_code == 200:
                pass
            for client in (nobody, forged):
                refused = await client.get(path)
                assert refused.json()["detail"].startswith("address 127.0.0.1")
        # A card, its manifest, a pairing and ciphertexts came before. Beyond its rate the member counts as anonymous.
        answers = [(await member.get(path)).status_code for _ in range(24)]
        assert answers == [200] * 16 + [429] * 8


async def test_nobody_holds_all_polls(tmp_path: Path, party: Party) -> None:
    async with running(tmp_path, limits=few(at_once=2)) as server, server.anonymous() as nobody:
        round_id = await party.begun(server)
        path, version = f"/v1/rounds/{round_id}", (await server.view(round_id))["version"]
        waiting = {"after": version, "wait_s": 30}
        polls = [asyncio.create_task(nobody.get(path, params=waiting)) for _ in range(2)]
        await wait_until(lambda: server.app.state.limits._under_way["address 127.0.0.1"] >= 2)
        refused = await nobody.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await server.client.get(f"{path}/requests/m-0")).status_code == 200
        server.coordinator.stop_waiting()
        assert [(await poll).status_code for poll in polls] == [200] * 2
        again = nobody.get(path, params=waiting)  # is held no more
        assert (await asyncio.wait_for(again, 20)).status_code == 200


def test_a_caller_has_so_much_of_bodies_under_way(found: Limits) -> None:
    """Even if the bodies arrive slowly."""
    most = callers.CALLER_BODY_BYTES_MAX
    with found.under_way(MEMBER, at("x"), most - 1):
        with (
            pytest.raises(TooMany, match=f"has {most - 1} bytes in progress"),
            found.under_way(MEMBER, at("x"), 2),
        ):
            pass
        with found.under_way(MEMBER, at("x"), 1):
            pass
    assert not found._bytes
    with found.under_way(MEMBER, at("x"), most + 1):  # one alone is bounded by its route
        pass
