"""Bodies come at a minimum rate, and large ones wait for room: one that is announced doesn't block others."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.bodies import ARRIVED_KEY, Pace, Room
from service.access.connections import Connection
from service.http.callers import TooMany
from tests.service.conftest import Past
from tests.support.party import Party
from tests.support.refusals import refusal, refused
from tests.support.serving import TOKEN, running, served

MIB = 1 << 20
MOMENT_S = 0.3
Message = dict[str, Any]
Sent = list[tuple[float, Message]]
X, EMPTY = ({"type": "http.request", "body": body, "more_body": True} for body in (b"x", b""))
LAST = {"type": "http.request", "body": b""}
GONE = {"type": "http.disconnect"}


async def paced(sent: Sent, scope: Message) -> list[Message]:
    """Receive messages that come after these seconds. Each byte buys a thousand seconds, and without any there are 50 ms."""
    left = list(sent)

    async def receive() -> Message:
        wait_s, message = left.pop(0)
        await asyncio.sleep(wait_s)
        return message

    receive_paced = Pace(0.05, 1e-3).limit_pace(scope, receive)
    await asyncio.sleep(0.1)  # while its caller is authenticated
    async with asyncio.timeout(30):
        return [dict(await receive_paced()) for _ in sent]


IN_TIME: dict[str, tuple[Sent, Message]] = {
    "at once": ([(0.0, X), (0.0, LAST)], {}),
    "what has come buys time": ([(0.0, X), (0.2, X), (0.2, LAST)], {}),
    "what is read in place buys time": ([(0.2, EMPTY), (0.0, LAST)], {ARRIVED_KEY: lambda: 1}),
    "once it is whole its sender may wait": ([(0.0, LAST), (0.2, GONE)], {}),
}
TOO_LATE: dict[str, tuple[Sent, Message]] = {
    "nothing": ([(60.0, LAST)], {}),
    "parts without bytes": ([(0.0, EMPTY), (60.0, LAST)], {}),
    "nothing of what is read in place": ([(0.0, X), (60.0, LAST)], {ARRIVED_KEY: lambda: 0}),
    "half, and the connection ends": ([(0.0, X), (0.0, GONE)], {}),
}


@pytest.mark.parametrize(("sent", "scope"), IN_TIME.values(), ids=IN_TIME)
async def test_a_body_at_the_minimum_rate_is_received(sent: Sent, scope: Message) -> None:
    assert await paced(sent, scope) == [message for _, message in sent]


@pytest.mark.parametrize(("sent", "scope"), TOO_LATE.values(), ids=TOO_LATE)
async def test_a_body_below_the_minimum_rate_is_incomplete(sent: Sent, scope: Message) -> None:
    with refused("body-incomplete"):
        await paced(sent, scope)


@pytest.mark.parametrize(
    ("size", "waits"), [(Connection.READ_BYTES, False), (Connection.READ_BYTES + 1, True)]
)
async def test_a_body_that_one_read_holds_needs_no_room(size: int, *, waits: bool) -> None:
    room = Room(1, wait_s=0.01)
    with ExitStack() as ending:
        (await room.enter_room(MIB, ending))()
        try:
            await room.enter_room(size, ending)
        except TooMany:
            assert waits
        else:
            assert not waits


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "MOMENT_S", MOMENT_S)


async def uploaded(room: Room, size: int, done: list[int], until: asyncio.Event) -> None:
    """Send a body at once, in a request that takes long."""
    with ExitStack() as ending:
        whole = await room.enter_room(size, ending)
        whole()
        done.append(size)
        await until.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_much_of_bodies_is_there_at_once_and_the_first_to_come_is_the_first_to_go() -> None:
    room, until, done = Room(8 * MIB), asyncio.Event(), list[int]()
    sizes = [3 * MIB + index for index in range(9)]
    async with asyncio.TaskGroup() as group:
        for size in sizes:
            group.create_task(uploaded(room, size, done, until))
        await settled()
        assert done == sizes[:3]  # the third had room for the part that it was expected to take
        await asyncio.sleep(2 * MOMENT_S)
        assert done == sizes[:3]  # those are there, however long they take
        until.set()
    assert done == sizes
    assert room._taken == 0


async def test_bodies_that_are_announced_and_do_not_come_keep_others_out_for_a_moment() -> None:
    room, until, done = Room(8 * MIB), asyncio.Event(), list[int]()
    with ExitStack() as silent:
        for _ in range(Room.PARTS):
            await room.enter_room(1 << 40, silent)
        waiting = asyncio.create_task(uploaded(room, MIB, done, until))
        await settled()
        assert not done
        until.set()
        async with asyncio.timeout(120):
            await waiting
    assert room._taken == 0


async def test_a_body_that_came_slowly_counts_once_it_is_there() -> None:
    room = Room(8 * MIB)
    with ExitStack() as ending:
        whole = await room.enter_room(6 * MIB, ending)
        assert room._taken == MIB
        await asyncio.sleep(2 * MOMENT_S)
        assert room._taken == 0
        whole()
        assert room._taken == 6 * MIB
        await asyncio.sleep(2 * MOMENT_S)
        assert room._taken == 6 * MIB
    assert room._taken == 0


async def test_whoever_finds_no_room_in_time_is_told_when_to_come_again() -> None:
    room = Room(MIB, wait_s=MOMENT_S)
    with ExitStack() as ending:
        (await room.enter_room(MIB, ending))()
        with ExitStack() as other, pytest.raises(TooMany, match="wait 5 s") as refused:
            await room.enter_room(MIB, other)
        assert refused.value.after_s == 5
    assert room._taken == 0


async def test_a_round_goes_well_where_there_is_hardly_any_room(
    stopped: Callable[[str], Past], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "SMALL", 0)
    past = stopped("formed")
    async with running(past.folder, body_room_bytes=1) as server:
        await past.party.done(server)
        assert server.app.state.room._taken == 0


async def test_a_body_that_finds_no_room_is_asked_to_come_again(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as server, served(server) as url:
        await party.begin(server)
        room, path = Room(MIB, wait_s=MOMENT_S), f"/v1/federations/{'00' * 32}/cohorts"
        monkeypatch.setattr(server.app.state, "room", room)
        with ExitStack() as ending:
            (await room.enter_room(MIB, ending))()
            async with httpx.AsyncClient(
                base_url=url, headers={"authorization": f"Bearer {TOKEN}"}
            ) as client:
                answer = await client.post(path, content=b"x" * 2 * Room.SMALL)
        assert refusal(answer) == (429, "too-many-requests")
        assert answer.headers["retry-after"] == "5"
