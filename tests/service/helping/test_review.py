"""What a hostile review broke in the coordinator's part of the mode with helpers, each as it was done (docs/assurance.md)."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from protocol.helpers.coordinator import Summing
from protocol.helpers.helper import Standing
from protocol.helpers.messages import ClientSet, HelperDeliveries, HelperLost
from service.federations import MAX_VERSION
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from tests.service.helping.driver import HelperParty, phase_of
from tests.service.serving import OCTETS, Server


def cause(answer: Any) -> str:
    assert answer.status_code >= 400, answer.text
    return str(answer.json()["cause"])


async def test_a_card_is_not_forgotten_for_a_view_that_began_before_it(
    server: Server, party: HelperParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask for the view: it read the cards, one came in and was acknowledged, and it kept those that it had read."""
    await party.found(server)
    party.down = party.helpers[1:]
    true, read, held = Database.reading, asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(self: Database) -> AsyncIterator[Any]:
        async with true(self) as connection:
            yield connection
        if asyncio.current_task() is asking:
            read.set()
            await held.wait()

    desk = await server.coordinator.helping.desk(party.federation)
    asking = asyncio.create_task(desk.view(0.0))
    monkeypatch.setattr(Database, "reading", slow)
    await asyncio.wait_for(read.wait(), 5)
    await party.enrol(server)
    held.set()
    assert (await asking).cards == ("h-0",)
    assert set((await desk.enrolling()).cards) == {"h-0"}


async def test_a_card_that_runs_out_while_clients_speak_is_left_out(
    server: Server, party: HelperParty
) -> None:
    """One false helper sent every client away: a client refuses an opening with a card that has expired."""
    await party.found(server)
    party.phases["h-0"], _ = Standing.start("h-0", party.admin.public, party.roster).enrol(
        party.keys["h-0"], expires_s=int(time.time()) + 60
    )
    await party.enrol(server)
    round_id = await party.open_round(server)
    assert (await server.view(round_id))["helpers"] == ["h-1", "h-2", "h-3"]


async def test_a_chunk_that_was_long_in_storing_does_not_make_an_upload_whole_after_the_freeze(
    server: Server, party: HelperParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are taken again once helpers sum: the client was told that all of it is in, and was not counted."""
    round_id = await party.begin(server)
    last = f"c-29/{server.coordinator.rounds[round_id].attempt.chunks - 1}"
    true, begun, stored = FileBlobs.put, threading.Event(), threading.Event()

    def slow(self: FileBlobs, name: str, data: bytes) -> None:
        true(self, name, data)
        if name.endswith(last):
            begun.set()
            assert stored.wait(20)

    monkeypatch.setattr(FileBlobs, "put", slow)
    speaking = asyncio.create_task(party.speak(server, round_id, "c-29"))
    assert await asyncio.to_thread(begun.wait, 20)
    party.down = ("c-29",)
    await party.play(server, round_id, "summing")
    assert isinstance(phase_of(server, round_id), Summing)
    stored.set()
    with pytest.raises(AssertionError, match="the round is summing and takes no uploads"):
        await speaking
    assert "c-29" not in (await server.view(round_id))["uploaded"]


async def test_a_strangers_announcement_is_weighed_before_it_is_read(
    server: Server, party: HelperParty
) -> None:
    round_id = await party.begin(server)
    await party.speak(server, round_id, "c-00")
    upload = party.spoken["c-00"].upload
    long = replace(upload, chunk_digests=tuple(os.urandom(32) for _ in range(1 << 10)))
    where = f"/v1/rounds/{round_id}/uploads/c-00"
    refused = await server.client.put(where, content=long.to_bytes(), headers=OCTETS)
    assert cause(refused) == "upload-misshapen"
    assert "at most 4" in refused.json()["detail"]


async def test_what_the_coordinator_says_itself_is_not_read_from_strangers(
    server: Server, party: HelperParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 MB of deliveries took 1.3 s to read, as an answer to nothing."""
    round_id = await party.begin(server)
    context = server.coordinator.rounds[round_id].attempt.context
    body = HelperDeliveries(context, ()).to_bytes()
    monkeypatch.setattr(HelperDeliveries, "from_bytes", None)
    client = server.signing("c-00", party.keys["c-00"])
    answers = await client.post(f"/v1/rounds/{round_id}/answers", content=body, headers=OCTETS)
    announced = await client.put(f"/v1/rounds/{round_id}/uploads/c-00", content=body, headers=OCTETS)
    assert (cause(answers), cause(announced)) == ("unknown-message", "unknown-message")


async def test_the_admin_signs_no_set_of_nobody(server: Server, party: HelperParty) -> None:
    """It has no root: the round could not be closed by it any more, nor by anything else."""
    round_id = await party.begin(server)
    party.down = ("h-2", "h-3", *party.ids)
    assert (await party.play(server, round_id))["state"] == "voiding"
    attempt = server.coordinator.rounds[round_id].attempt
    empty = HelperLost.make(
        party.admin,
        context=attempt.context,
        family="exact",
        floor=attempt.manifest.floor,
        sets=(ClientSet(()),),
    )
    posted = await server.client.post(f"/v1/rounds/{round_id}/lost", content=empty.to_bytes(), headers=OCTETS)
    assert cause(posted) == "malformed"
    assert (await party.lost(server, round_id)).json()["state"] == "abandoned"


async def test_a_late_roster_leaves_room_to_count_on(server: Server, party: HelperParty) -> None:
    await party.found(server, MAX_VERSION)
    version = (await server.client.get(party.desk)).json()["version"]
    assert version < 1 << 53
    waited = await server.client.get(party.desk, params={"after": version, "wait_s": 0.01})
    assert waited.status_code == 200
