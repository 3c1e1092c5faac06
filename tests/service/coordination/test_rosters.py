"""Rosters are parsed once for all requests."""

import asyncio
import threading
from typing import Any

import pytest
from sqlalchemy import insert

from service.coordination import federations
from service.coordination.federations import Federations
from service.storage.tables import rosters as table
from tests.support.refusals import refused
from tests.support.serving import Server, carry_out
from tests.support.simulator import simulated_roster
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Roster


def made(key: SigningKey, version: int, members: list[str]) -> Roster:
    """Make a roster in which each member's key encodes the roster's number."""
    keys = {member: key_in(version, place) for place, member in enumerate(sorted(members))}
    return simulated_roster(key, bytes(32), keys, number=version, study_key=bytes(range(32)))


def key_in(version: int, place: int) -> bytes:
    """Return the key of the member at a place."""
    return bytes([version, place]) + bytes(30)


def fresh_federations(server: Server) -> Federations:
    """Make federations without a cache."""
    return Federations(server.coordinator.database, server.coordinator.key.public)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of each roster that is parsed from storage."""
    found = list[int]()

    class Counted(Roster):
        @classmethod
        def from_bytes(cls, data: Any) -> Any:
            roster = Roster.from_bytes(data)
            found.append(roster.number)
            return roster

    monkeypatch.setattr(federations, "Roster", Counted)
    return found


async def stored(server: Server, key: SigningKey, *versions: list[str]) -> str:
    """Store a federation with these roster versions."""
    federation = key.public.hex()
    for number, members in enumerate(versions, 1):
        values = {"federation": federation, "number": number, "body": made(key, number, members).to_bytes()}
        await carry_out(server.coordinator.database, insert(table).values(**values))
    return federation


async def test_a_long_roster_holds_no_other_up_and_is_parsed_once(
    server: Server, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = await stored(server, SigningKey(b"l" * 32), [f"m-{place}" for place in range(200)])
    short = await stored(server, SigningKey(b"s" * 32), ["a"])
    go_on, counted = threading.Event(), vars(federations)["Roster"]

    class Slow(Roster):
        @classmethod
        def from_bytes(cls, data: Any) -> Any:
            if len(data) > 1000:
                assert go_on.wait(30)
            return counted.from_bytes(data)

    monkeypatch.setattr(federations, "Roster", Slow)
    fresh = fresh_federations(server)
    waiting = [asyncio.ensure_future(fresh.read_roster(long)) for _ in range(20)]
    try:
        found = await asyncio.wait_for(fresh.read_roster(short, 1), 10)
    finally:
        go_on.set()
    assert found.number == 1
    assert len({id(each) for each in await asyncio.gather(*waiting)}) == 1
    assert len(parsed) == 2
    for unknown in (fresh.read_roster(short, 9), fresh.read_roster("0" * 64), fresh.roster_body("0" * 64)):
        with refused("not-found", ...):
            await unknown
