"""Rosters are parsed once for all who ask, and former members are remembered."""

import asyncio
import threading
from typing import Any

import pytest
from sqlalchemy import insert

from service import federations
from service.cache import Recent
from service.federations import Federations, Former, Gone
from service.storage.tables import rosters as table
from tests.service.driver import Party
from tests.service.pages.gallery import browser
from tests.service.serving import Server
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Roster
from veilsum.protocol.messages.roster import Entry


def test_what_was_used_last_is_kept_up_to_a_weight() -> None:
    recent = Recent[str, int](10)
    recent.put("a", 1, 4)
    recent.put("b", 2, 4)
    assert recent.get("a") == 1
    recent.put("c", 3, 4)
    assert [recent.get(each) for each in "abc"] == [1, None, 3]
    recent.put("c", 4, 6)  # in place of what it weighed before
    assert [recent.get(each) for each in "ac"] == [1, 4]
    recent.put("heavy", 5, 100)
    assert [recent.get(each) for each in ("a", "c", "heavy")] == [None, None, 5]
    recent.put("a", 6, 1)
    assert [recent.get(each) for each in ("a", "heavy")] == [6, None]


def made(key: SigningKey, version: int, members: list[str]) -> Roster:
    """A roster in which each member's key tells its number too."""
    return Roster.make(
        key,
        number=version,
        name="a federation",
        federation=key.public,
        coordinator=bytes(32),
        study_key=bytes(range(32)),
        members=tuple(Entry(member, key_in(version, place)) for place, member in enumerate(sorted(members))),
        decryptors=(),
        readers=(),
        revoked=(),
    )


def key_in(version: int, place: int) -> bytes:
    """Of the member at that place."""
    return bytes([version, place]) + bytes(30)


def fresh_federations(server: Server) -> Federations:
    """Without anything in memory."""
    return Federations(server.coordinator.database, server.coordinator.key.public)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each roster that is parsed from storage."""
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
    """A federation of these versions."""
    federation = key.public.hex()
    for number, members in enumerate(versions, 1):
        values = {"federation": federation, "number": number, "body": made(key, number, members).to_bytes()}
        async with server.coordinator.database.transaction() as connection:
            await connection.execute(insert(table).values(**values))
    return federation


async def test_requests_and_pages_parse_each_roster_once(
    server: Server, party: Party, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await party.found(server)
    other = await stored(server, SigningKey(b"o" * 32), ["a", "b"], ["a"])
    parsed.clear()
    monkeypatch.setattr(server.coordinator, "federations", fresh_federations(server))
    here = f"/v1/federations/{party.federation}"
    paths = [f"{here}{rest}" for rest in ("", "/roster", "/chain", "/studies", "/runs")]
    paths += [f"/federations/{party.federation}", f"/federations/{other}", "/federations"]
    async with browser(server) as nobody:
        answers = await asyncio.gather(*(nobody.get(path) for path in paths * 5))
    assert {answer.status_code for answer in answers} == {200}
    assert answers[1].content == party.roster.to_bytes()
    assert sorted(parsed) == [1, 1, 2]


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
    waiting = [asyncio.ensure_future(fresh.roster(long)) for _ in range(20)]
    try:
        found = await asyncio.wait_for(fresh.roster(short, 1), 10)
    finally:
        go_on.set()
    assert found.number == 1
    assert len({id(each) for each in await asyncio.gather(*waiting)}) == 1
    assert len(parsed) == 2
    for unknown in (fresh.roster(short, 9), fresh.roster("0" * 64), fresh.roster_body("0" * 64)):
        with pytest.raises(PeerFault, match="no such federation"):
            await unknown


async def test_former_members_are_found_by_looking_at_each_version_once(
    server: Server, parsed: list[int]
) -> None:
    first, second = SigningKey(b"1" * 32), SigningKey(b"2" * 32)
    names = [await stored(server, key, ["a", "b", "c"], ["b", "c"], ["a", "c"]) for key in (first, second)]
    fresh = fresh_federations(server)
    for _ in range(3):
        found = await asyncio.gather(*(fresh.former(federation) for federation in names * 5))
        assert all(former == Former(3, {"b": Gone(3, key_in(2, 0))}) for former in found)
    assert sorted(parsed) == [1, 1, 2, 2, 3, 3]
    assert await fresh.former("0" * 64) == Former()


def test_a_returning_member_is_not_former_and_the_last_to_leave_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federations, "KEPT_FORMER", 2)
    former, before = Former(), None
    for version, members in enumerate(("abcde", "bde", "abde", "abe", "be", "e"), 1):
        roster = made(SigningKey(bytes(32)), version, list(members))
        former, before = former.after(before, roster), roster
        if version == 4:
            assert former == Former(4, {"c": Gone(2, key_in(1, 2)), "d": Gone(4, key_in(3, 2))})
    assert {name: gone.removed_in for name, gone in former.gone.items()} == {"a": 5, "b": 6}
    assert former.more
