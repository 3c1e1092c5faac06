"""A round's journal, when other processes write to it too."""

import hashlib
import json

import pytest

from service.coordination.events import Event
from service.coordination.journal import (
    APPENDED_OUTCOME,
    BEHIND_OUTCOME,
    EVENTS_FOLDER,
    STALLED_OUTCOME,
    Journal,
)
from service.coordination.standing import RoundEnd, Standing, read_view, replay_events
from service.storage import audit
from service.storage.faults import seal_text
from tests.support.party import Party
from tests.support.refusals import refused
from tests.support.serving import Server
from veilsum.protocol.messages import Erasure


@pytest.mark.both_stores
async def test_a_process_ends_no_round_over_events_that_it_has_not_seen(
    server: Server, formed: Party
) -> None:
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    round_ = server.live(round_id)
    seen = round_.standing
    assert seen is not None
    shared = server.coordinator.database.shared
    late = Journal(server.coordinator.database, server.coordinator.blobs, round_id, seen)
    assert not await late.is_behind()
    await formed.serve(server, round_id, "m-1")
    assert await late.is_behind() == shared
    deed = audit.Deed(1.0, audit.COORDINATOR_ACTOR, "round ended")
    end = RoundEnd(round_.current_view(), Erasure(round_.attempt.context, ()), None)
    assert await late.end_round(end, b"link", deed) == BEHIND_OUTCOME
    ended, unseen, _ = await late.read_unseen(seen.seen)
    assert ended is None
    assert [json.loads(each.body) for each in unseen if each.kind == "chunk"] == [
        ["m-1", index] for index in range(len(formed.chunks["m-1"]))
    ]
    assert len((await late.read_unseen(0, 2))[1]) == 2
    cancel = Event(1.0, "cancel", b"a test")
    after, _ = replay_events(seen, [cancel])
    assert await late.append_events([cancel], after=after) == BEHIND_OUTCOME
    assert late.standing is seen
    assert await late.catch_up() == APPENDED_OUTCOME
    assert late.standing.version == round_.position.version
    assert (await formed.play(server, round_id))["state"] == "done"
    assert isinstance(late.standing, Standing)
    assert await late.is_behind() == shared
    after, _ = replay_events(late.standing, [cancel])
    assert await late.append_events([cancel], after=after) == BEHIND_OUTCOME
    await late.catch_up()
    assert late.standing.view == server.coordinator.catalogue.rounds[round_id].current_view()


async def test_a_rewind_is_announced_and_leads_a_late_process_past_the_damage(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, blobs = server.coordinator.database, server.coordinator.blobs
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    seen = server.live(round_id).standing
    assert seen is not None
    late, first = (Journal(database, blobs, round_id, seen) for _ in range(2))
    for member in ("m-1", "m-2"):
        await formed.serve(server, round_id, member)
    blobs.delete(f"{EVENTS_FOLDER}/{round_id}/{hashlib.sha256(formed.upload_of('m-2')).hexdigest()}")
    assert await first.catch_up() == STALLED_OUTCOME
    announced = list[str]()
    monkeypatch.setattr(database, "announce_change", lambda _, topic: announced.append(topic))
    assert await first.rewind(1.0) == APPENDED_OUTCOME
    assert announced == [round_id]
    assert await late.catch_up() == APPENDED_OUTCOME
    assert late.standing.version == first.standing.version


async def test_the_view_of_another_round_is_damage(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    view = server.coordinator.catalogue.rounds[round_id].current_view()
    stored = seal_text(view.model_dump_json())
    assert read_view(round_id, stored) == view
    with refused("storage-damaged", ...):
        read_view("0" * 16, stored)
