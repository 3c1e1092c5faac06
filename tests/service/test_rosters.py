"""Nobody who asks for members or pages makes a roster parse, and one that is parsed holds no other up."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert

from protocol.codec import NAME_PATTERN
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Roster
from protocol.messages.roster import PARTIES, Entry
from service import rosters
from service.listed import Listed
from service.rosters import Former, Gone, Recent, Rosters
from service.storage.tables import rosters as table
from tests.service.driver import Party
from tests.service.pages.gallery import browser
from tests.service.serving import Server


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


def made(key: SigningKey, version: int, members: list[str], **changes: Any) -> Roster:
    """A roster in which each member's key tells its number too."""
    return Roster.make(
        key,
        number=version,
        name="a federation",
        federation=key.public,
        coordinator=bytes(32),
        study_key=bytes(range(32)),
        members=tuple(Entry(member, key_in(version, place)) for place, member in enumerate(sorted(members))),
        **{"decryptors": (), "readers": (), "revoked": (), **changes},
    )


def key_in(version: int, place: int) -> bytes:
    """Of the member who stands there."""
    return bytes([version, place]) + bytes(30)


@given(st.data())
def test_entries_are_read_out_of_a_stored_roster_as_out_of_a_parsed_one(data: st.DataObject) -> None:
    name = st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda text: text not in PARTIES)
    members = data.draw(st.lists(name, min_size=1, max_size=20, unique=True))
    some = st.lists(st.sampled_from(members), unique=True).map(sorted).map(tuple)
    named = {role: data.draw(some) for role in ("decryptors", "readers")}
    digests = st.sets(st.binary(min_size=32, max_size=32), max_size=3).map(sorted).map(tuple)
    roster = made(
        SigningKey(bytes(32)),
        data.draw(st.integers(0, 200)),
        members,
        revoked=data.draw(digests),
        **named,
    )
    listed = Listed(roster.to_bytes())
    assert listed.revoked == frozenset(roster.revoked)
    for what in ("number", "name", "federation", "study_key", "hash"):
        assert getattr(listed, what) == getattr(roster, what)
    for role in ("decryptors", "readers"):
        assert tuple(getattr(listed, role)) == getattr(roster, role)
    ids = tuple(entry.member for entry in roster.members)
    assert (tuple(listed.members), listed.members[:], len(listed.members)) == (ids, ids, len(ids))
    assert (listed.members[0], listed.members[-1], listed.members[1:3]) == (ids[0], ids[-1], ids[1:3])
    assert [listed.key_of(member) for member in ids] == [entry.key for entry in roster.members]
    for stranger in {*data.draw(st.lists(name)), "a", "z" * 64} - set(ids):
        assert stranger not in listed.members
        with pytest.raises(PeerFault, match="is not in roster"):
            listed.key_of(stranger)


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


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The version of each roster that is read out of storage for single entries."""
    found = list[int]()

    class Counted(Listed):
        def __init__(self, body: bytes) -> None:
            super().__init__(body)
            found.append(self.number)

    monkeypatch.setattr(rosters, "Listed", Counted)
    return found


async def stored(server: Server, key: SigningKey, *versions: list[str], **changes: Any) -> str:
    """A federation of these versions."""
    for number, members in enumerate(versions, 1):
        roster = made(key, number, members, **changes)
        values = {"federation": key.public.hex(), "number": number, "body": roster.to_bytes()}
        async with server.coordinator.database.transaction() as connection:
            await connection.execute(insert(table).values(**values))
    return key.public.hex()


@pytest.mark.parametrize("kept", [rosters.KEPT_BYTES, 1])
async def test_requests_and_pages_parse_no_roster(
    server: Server,
    party: Party,
    parsed: list[int],
    looked_at: list[int],
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    """Not where there are more federations than are kept either."""
    await party.found(server)
    other = await stored(server, SigningKey(b"o" * 32), ["a", "b"], ["a"])
    parsed.clear()
    looked_at.clear()
    monkeypatch.setattr(rosters, "KEPT_BYTES", kept)
    federations = server.coordinator.federations
    monkeypatch.setattr(federations, "rosters", Rosters(server.coordinator.database))
    here = f"/v1/federations/{party.federation}"
    paths = [f"{here}{rest}" for rest in ("", "/roster", "/chain", "/studies", "/runs")]
    paths += [f"/federations/{party.federation}", f"/federations/{other}", "/members"]
    async with browser(server) as nobody:
        answers = await asyncio.gather(*(nobody.get(path) for path in paths * 5))
    assert {answer.status_code for answer in answers} == {200}
    assert answers[1].content == party.roster.to_bytes()
    assert parsed == []
    if kept > 1:  # each newest one, and both of those that there were before somebody left
        assert sorted(looked_at) == [1, 1, 1, 2, 2]


async def test_a_long_roster_holds_no_other_up_and_is_parsed_once(
    server: Server, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = await stored(server, SigningKey(b"l" * 32), [f"m-{place}" for place in range(200)])
    short = await stored(server, SigningKey(b"s" * 32), ["a"])
    go_on, counted = threading.Event(), vars(rosters)["Roster"]

    class Slow(Roster):
        @classmethod
        def from_bytes(cls, data: Any) -> Any:
            if len(data) > 1000:
                assert go_on.wait(30)
            return counted.from_bytes(data)

    monkeypatch.setattr(rosters, "Roster", Slow)
    fresh = Rosters(server.coordinator.database)
    waiting = [asyncio.ensure_future(fresh.numbered(long, 1)) for _ in range(20)]
    try:
        found = await asyncio.wait_for(fresh.numbered(short, 1), 10)
    finally:
        go_on.set()
    assert found is not None
    assert len({id(each) for each in await asyncio.gather(*waiting)}) == 1
    assert len(parsed) == 2
    assert await fresh.numbered(short, 9) is None
    assert await fresh.newest("0" * 64) is None
    assert await fresh.body("0" * 64) is None


async def test_who_left_is_found_by_looking_at_each_version_once(
    server: Server, looked_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rosters, "KEPT_BYTES", 1)
    first, second = SigningKey(b"1" * 32), SigningKey(b"2" * 32)
    names = [await stored(server, key, ["a", "b", "c"], ["b", "c"], ["a", "c"]) for key in (first, second)]
    fresh = Rosters(server.coordinator.database)
    for _ in range(3):
        for federation in names:
            former = await fresh.former(federation)
            assert former == Former(3, {"b": Gone(3, key_in(2, 0))})
    assert looked_at == [1, 2, 3] * 2
    await asyncio.gather(*(fresh.former(federation) for federation in names * 5))
    assert looked_at == [1, 2, 3] * 2
    assert await fresh.former("0" * 64) == Former()


def test_whoever_comes_back_is_a_member_again_and_those_who_left_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rosters, "KEPT_FORMER", 2)
    former, before = Former(), None
    for version, members in enumerate(("abcde", "bde", "abde", "abe", "be", "e"), 1):
        listed = Listed(made(SigningKey(bytes(32)), version, list(members)).to_bytes())
        former, before = former.after(before, listed), listed
        if version == 4:
            assert former == Former(4, {"c": Gone(2, key_in(1, 2)), "d": Gone(4, key_in(3, 2))})
    assert (former.names, former.more) == (("a", "b"), True)
    assert {name: gone.removed_in for name, gone in former.gone.items()} == {"a": 5, "b": 6}
