"""Rosters are parsed once, however often and by whomever they are asked for."""

import asyncio
from typing import Any

import pytest

from protocol.messages import Roster
from service import rosters
from service.rosters import Everybody, Recent, Rosters
from tests.service.driver import Party
from tests.service.pages.gallery import browser
from tests.service.serving import OCTETS, Server


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


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each roster that is parsed from storage."""
    found = list[int]()

    class Counted(Roster):
        @classmethod
        def from_bytes(cls, data: Any) -> Any:
            found.append(len(data))
            return Roster.from_bytes(data)

    monkeypatch.setattr(rosters, "Roster", Counted)
    return found


async def test_requests_and_pages_parse_no_roster_again(
    server: Server, party: Party, parsed: list[int]
) -> None:
    await party.found(server)
    body = party.roster.to_bytes()
    paths = [f"/v1/federations/{party.federation}{rest}" for rest in ("", "/roster", "/ledger", "/budget")]
    paths += [f"/federations/{party.federation}", "/members"]
    async with browser(server) as nobody:
        answers = await asyncio.gather(*(nobody.get(path) for path in paths * 5))
    assert {answer.status_code for answer in answers} == {200}
    assert answers[1].content == body
    # Of helpers' cards the newest roster says whose they are, before the body is read.
    for _ in range(3):
        path = f"/v1/federations/{party.federation}/helpers/m-0/card"
        refused = await server.client.put(path, content=b"", headers=OCTETS)
        assert refused.status_code != 401, refused.text
    assert parsed == [len(body)]


async def test_those_asked_for_at_the_same_time_are_parsed_once_and_kept_within_bounds(
    server: Server, party: Party, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await party.found(server)
    for version in (2, 3):
        roster = party.make_roster(party.roster.coordinator, version, members=party.roster.members[version:])
        put = await server.client.put(
            f"/v1/federations/{party.federation}/roster", content=roster.to_bytes(), headers=OCTETS
        )
        assert put.status_code == 201
    parsed.clear()
    fresh = Rosters(server.coordinator.database)
    found = await asyncio.gather(*(fresh.newest(party.federation) for _ in range(20)))
    assert {id(each) for each in found} == {id(found[0])}
    assert len(parsed) == 1
    assert await fresh.newest("0" * 64) is await fresh.version(party.federation, 9) is None
    assert await fresh.body("0" * 64) is None
    monkeypatch.setattr(rosters, "KEPT_BYTES", 1)
    fresh = Rosters(server.coordinator.database)
    everybody = await fresh.everybody(party.federation)
    assert everybody.version == 3
    assert everybody.removed_in == {"m-0": 2, "m-1": 2, "m-2": 3}
    assert everybody.names == ("m-3", "m-4", "m-5", "m-0", "m-1", "m-2")
    parsed.clear()
    assert await fresh.everybody(party.federation) is everybody
    assert parsed == []
    assert await fresh.everybody("0" * 64) == Everybody()


def test_whoever_comes_back_is_a_member_again(party: Party) -> None:
    everybody, entries = Everybody(), party.make_roster(bytes(32)).members
    for version, left_out in ((1, ""), (2, "1"), (3, "01"), (4, "0")):
        members = tuple(entry for entry in entries if entry.member[2:] not in left_out)
        everybody = everybody.after(party.make_roster(bytes(32), version, members=members))
    assert everybody.removed_in == {"m-0": 3}
    assert everybody.keys["m-1"] == party.keys["m-1"].public
