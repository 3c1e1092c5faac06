"""A round's events: simultaneous events are stored together, each with its own outcome, and the right members are asked again."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from service.coordination.events import Event
from service.coordination.journal import APPENDED_OUTCOME, Journal, Outcome
from service.coordination.rounds import LiveRound
from service.coordination.standing import Standing, replay_events
from tests.support.party import Party
from tests.support.serving import Server
from tests.support.simulator import After
from veilsum.protocol.errors import Misuse, PeerFault


@pytest.fixture
async def round_(server: Server, formed: Party) -> LiveRound:
    """All members have announced, and none has sent a chunk."""
    round_id = await formed.open_round(server)
    for member in formed.ids:
        assert (await formed.announce(server, round_id, member)).status_code == 200
    return server.live(round_id)


@pytest.fixture
def sizes(round_: LiveRound, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of events in each commit."""
    append, found = Journal.append_events, list[int]()

    async def watching(journal: Journal, following: Sequence[Event], *, after: Standing) -> Outcome:
        found.append(len(following))
        return await append(journal, following, after=after)

    monkeypatch.setattr(Journal, "append_events", watching)
    return found


def chunk(member: str, index: int) -> Any:
    return lambda _: Event(time.time(), "chunk", f'["{member}", {index}]'.encode())


async def test_each_has_its_own_outcome(round_: LiveRound, sizes: list[int]) -> None:
    def defect(_: object) -> Event:
        raise ZeroDivisionError

    async def submit(decide: Any) -> str:
        try:
            await round_._decisions.put_item(decide)
        except (PeerFault, ZeroDivisionError) as error:
            return getattr(error, "cause", "defect")
        return "kept"

    wanted = [chunk("m-0", 0), chunk("m-1", 0), chunk("m-1", 99), defect, chunk("nobody", 0), chunk("m-2", 0)]
    outcomes = await asyncio.gather(*map(submit, wanted))
    assert outcomes == ["kept", "kept", "chunk-unknown", "defect", "chunk-unknown", "kept"]
    assert sizes == [3]
    assert round_.upload_view("m-1").missing[0] == 1


async def test_what_follows_on_another_phase_is_decided_in_it(
    round_: LiveRound, formed: Party, sizes: list[int]
) -> None:
    """The last chunk ends the collecting phase: later events of the same batch meet the next phase."""
    wanted = [(member, index) for member in formed.ids for index in range(len(formed.chunks[member]))]
    decisions = [
        *(chunk(*each) for each in wanted),
        lambda standing: pytest.fail("not after the last chunk") if standing.state == "collecting" else None,
    ]
    assert await round_._accept_decisions(decisions) == [None] * len(decisions)
    assert sizes == [len(wanted)]


async def test_nothing_is_kept_of_what_another_process_came_before(
    round_: LiveRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two numbers is taken: both events are stored after it, and neither under its old number."""
    seen, host = round_.standing, round_._host
    assert seen is not None
    other, first = Journal(host.database, host.blobs, round_.id, seen), Event(1.0, "chunk", b'["m-3", 0]')
    assert await other.append_events([first], after=replay_events(seen, [first])[0]) == APPENDED_OUTCOME
    assert await round_._accept_decisions([chunk("m-0", 0), chunk("m-1", 0)]) == [None, None]
    _, stored, _ = await other.read_unseen(0)
    assert [event.body for event in stored][-3:] == [b'["m-3", 0]', b'["m-0", 0]', b'["m-1", 0]']


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("evicted", [False, True])
async def test_members_are_asked_anew_by_every_phase_once_and_by_an_eviction(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch, *, evicted: bool
) -> None:
    if evicted:
        formed.false_dealer("m-3")
    else:
        formed.drop = {"m-5": After.OPENING}
    round_id = await formed.open_round(server)
    round_, asked = server.live(round_id), dict[str, set[int]]()
    show_change = round_._show_change

    def watching(before: Any) -> None:
        if (standing := round_.standing) is not None:
            asked.setdefault(standing.phase.name, set()).add(standing.asked)
        show_change(before)

    monkeypatch.setattr(round_, "_show_change", watching)
    await formed.play(server, round_id)
    assert {name: len(versions) for name, versions in asked.items()} == {
        "collecting": 1,
        "checking": 1,
        "freezing": 1,
        "revealing": 1 + evicted,
        "recovered": 1,
    }
    assert round_.position.asked == round_.position.version


async def test_an_event_of_another_release_cancels_nothing(round_: LiveRound) -> None:
    assert round_.standing is not None
    after, error = replay_events(round_.standing, [Event(1.0, "later")])
    assert (after, type(error)) == (round_.standing, Misuse)
