"""A round's events: simultaneous events are stored together, each with its own outcome, and the right members are asked again."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from service.coordination.journal import AT_ONCE, Event, replayed
from service.coordination.rounds import Round
from service.coordination.summing import Memory
from tests.support.party import Party
from tests.support.serving import OCTETS, Server
from tests.support.simulator import After
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.transcript import Transcript


@pytest.fixture
async def round_(server: Server, formed: Party) -> Round:
    """All members have announced, and none has sent a chunk."""
    round_id = await formed.open_round(server)
    for member in formed.ids:
        formed.seal(member, await server.opening(round_id, member))
        where = f"/v1/rounds/{round_id}/uploads/{member}"
        sent = await server.client.put(where, content=formed.upload_of(member), headers=OCTETS)
        assert sent.status_code == 200
    return server.coordinator.catalogue.rounds[round_id]


def kept(round_: Round, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of events in each commit."""
    append, sizes = round_._journal.append, list[int]()

    async def watching(following: Sequence[Event]) -> bool:
        sizes.append(len(following))
        return await append(following)

    monkeypatch.setattr(round_._journal, "append", watching)
    return sizes


def chunk(member: str, index: int) -> Any:
    return lambda _: Event(time.time(), "chunk", f'["{member}", {index}]'.encode())


async def test_each_has_its_own_outcome(round_: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = kept(round_, monkeypatch)

    def defect(_: object) -> Event:
        raise ZeroDivisionError

    async def submit(decide: Any) -> str:
        try:
            await round_._decisions.put(decide)
        except (PeerFault, ZeroDivisionError) as error:
            return getattr(error, "cause", "defect")
        return "kept"

    wanted = [chunk("m-0", 0), chunk("m-1", 0), chunk("m-1", 99), defect, chunk("nobody", 0), chunk("m-2", 0)]
    outcomes = await asyncio.gather(*map(submit, wanted))
    assert outcomes == ["kept", "kept", "chunk-unknown", "defect", "chunk-unknown", "kept"]
    assert sizes == [3]
    assert round_.upload_view("m-1").missing[0] == 1


async def test_what_follows_on_another_phase_is_decided_in_it(
    round_: Round, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last chunk ends the collecting phase: later events of the same batch meet the next phase."""
    sizes = kept(round_, monkeypatch)
    wanted = [(member, index) for member in formed.ids for index in range(len(formed.chunks[member]))]
    decisions = [
        *(chunk(*each) for each in wanted),
        lambda phase: pytest.fail("not after the last chunk") if phase.name == "collecting" else None,
    ]
    assert await round_._accept(decisions) == [None] * len(decisions)
    assert sizes == [len(wanted)]


async def test_nothing_is_kept_of_what_another_process_came_before(
    round_: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two numbers is taken: both events are stored after it, and neither under its old number."""
    other = Round.__new__(Round)
    other.__dict__.update(round_.__dict__)
    other._journal = type(round_._journal)(round_._database, round_._blobs, round_.id)
    other._journal.seen = round_._journal.seen
    assert await other._journal.append([Event(1.0, "chunk", b'["m-3", 0]')])
    round_._behind = False
    assert await round_._accept([chunk("m-0", 0), chunk("m-1", 0)]) == [None, None]
    _, stored = await type(round_._journal)(round_._database, round_._blobs, round_.id).unseen()
    assert [event.body for event in stored][-3:] == [b'["m-3", 0]', b'["m-0", 0]', b'["m-1", 0]']


async def test_stored_events_are_taken_up_many_at_a_time(
    round_: Round, server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    for member in formed.ids:
        await asyncio.gather(
            *(round_._decisions.put(chunk(member, index)) for index in range(len(formed.chunks[member])))
        )
    await round_.advance(server.clock())  # its deadline is long past, and the scheduler may be first
    events, hops = round_._journal.seen, list[int]()
    setting, opened_s = round_.live.setting, round_.opened_s
    begun = Collecting.begin(round_.attempt, opened_s, setting.earlier)
    noted = Transcript.begin(round_.attempt, (await server.coordinator.catalogue.cohort(formed.cohort)).cards)
    stores = round_._database, round_._blobs, Memory(0)
    again = Round(*stores, lambda: None, lambda _: None, round_._key, round_.attempt, opened_s, begun, noted)

    async def hop(work: Any, *arguments: Any) -> Any:
        if work is replayed:
            hops.append(len(arguments[-1]))
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", hop)
    await again.resume(0.0)
    assert again._journal.seen == events == sum(hops) > AT_ONCE
    assert max(hops) == AT_ONCE
    assert (again.view(), again.noted, again.asked) == (round_.view(), round_.noted, round_.asked)


@pytest.mark.parametrize("evicted", [False, True])
async def test_members_are_asked_anew_by_every_phase_once_and_by_an_eviction(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch, *, evicted: bool
) -> None:
    if evicted:
        formed.false_dealer("m-3")
    else:
        formed.drop = {"m-5": After.OPENING}
    round_id = await formed.open_round(server)
    round_, asked = server.coordinator.catalogue.rounds[round_id], dict[str, set[int]]()
    moved = round_._moved

    def watching(*arguments: Any) -> None:
        moved(*arguments)
        asked.setdefault(round_.live.name, set()).add(round_.asked)

    monkeypatch.setattr(round_, "_moved", watching)
    await formed.play(server, round_id)
    assert {name: len(versions) for name, versions in asked.items()} == {
        "collecting": 1,
        "checking": 1,
        "freezing": 1,
        "revealing": 1 + evicted,
        "recovered": 1,
    }
    assert round_.asked == round_.version


async def test_an_event_of_another_release_cancels_nothing(round_: Round) -> None:
    with pytest.raises(Misuse, match="the kind 'later'"):
        Event(1.0, "later").apply(round_.live)
