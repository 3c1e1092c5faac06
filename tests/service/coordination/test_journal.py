"""A round's journal, when other processes write to it too."""

import hashlib
import json

import pytest
from sqlalchemy import delete, insert, select, update

from service.coordination.events import Event
from service.coordination.journal import (
    APPENDED_OUTCOME,
    BEHIND_OUTCOME,
    EVENTS_FOLDER,
    STALLED_OUTCOME,
    Journal,
    begin_round,
    read_counts,
    read_survivors,
    select_round_count,
)
from service.coordination.standing import RoundEnd, Standing, read_view, replay_events
from service.storage import audit
from service.storage.faults import seal_text
from service.storage.tables import events, links, lost_contexts, rounds, sums
from tests.support.party import COUNTS, Party
from tests.support.refusals import refused
from tests.support.serving import Server, carry_out
from veilsum.protocol.messages import Erasure


@pytest.fixture
def announced(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the topics of announced changes."""
    found = list[str]()
    monkeypatch.setattr(server.coordinator.database, "announce_change", lambda _, topic: found.append(topic))
    return found


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
    server: Server, formed: Party, announced: list[str]
) -> None:
    database, blobs = server.coordinator.database, server.coordinator.blobs
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    seen = server.live(round_id).standing
    assert seen is not None
    late, first, ahead = (Journal(database, blobs, round_id, seen) for _ in range(3))
    announced.clear()
    for member in ("m-1", "m-2"):
        await formed.serve(server, round_id, member)
    assert set(announced) == {round_id}
    assert await ahead.catch_up() == APPENDED_OUTCOME
    lost = hashlib.sha256(formed.upload_of("m-2")).digest()
    blobs.delete(f"{EVENTS_FOLDER}/{round_id}/{lost.hex()}")
    assert await first.catch_up() == STALLED_OUTCOME
    assert isinstance(first.standing, Standing)
    assert first.standing.stall is not None
    assert first.standing.stall.digest == lost
    announced.clear()
    assert await first.rewind(1.0) == APPENDED_OUTCOME
    assert announced == [round_id]
    for other in (late, ahead):  # before the damage, and beyond it
        assert await other.catch_up() == APPENDED_OUTCOME
        assert isinstance(other.standing, Standing)
        assert (other.standing.version, other.standing.seen) == (first.standing.version, first.standing.seen)
    live = server.live(round_id)
    end = RoundEnd(live.current_view(), Erasure(live.attempt.context, ()), None)
    deed = audit.Deed(1.0, audit.COORDINATOR_ACTOR, "round ended")
    assert await late.end_round(end, b"link", deed) == APPENDED_OUTCOME, "nothing has come since"


async def test_a_round_stalls_where_an_event_is_missing(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    seen = server.live(round_id).standing
    assert seen is not None
    await formed.serve(server, round_id, "m-0")
    await carry_out(server.coordinator.database, delete(events).where(events.c.number == seen.seen + 1))
    late = Journal(server.coordinator.database, server.coordinator.blobs, round_id, seen)
    assert await late.catch_up() == STALLED_OUTCOME
    assert isinstance(late.standing, Standing)
    assert late.standing.stall is not None
    assert (late.standing.seen, late.standing.stall.digest) == (seen.seen + 1, b"")


async def test_events_that_cannot_be_read_now_are_not_damaged(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = await formed.open_round(server)
    seen = server.live(round_id).standing
    assert seen is not None
    await formed.serve(server, round_id, "m-0")
    late = Journal(server.coordinator.database, server.coordinator.blobs, round_id, seen)

    def away(_: str) -> bytes:
        raise OSError("the bucket is away")

    with monkeypatch.context() as patched:
        patched.setattr(server.coordinator.blobs, "get", away)
        with pytest.raises(OSError, match="away"):
            await late.catch_up()
    assert late.standing is seen
    assert await late.catch_up() == APPENDED_OUTCOME
    assert late.standing.version == server.live(round_id).position.version


async def test_the_view_of_another_round_is_damage(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    view = server.coordinator.catalogue.rounds[round_id].current_view()
    stored = seal_text(view.model_dump_json())
    assert read_view(round_id, stored) == view
    with refused("storage-damaged", ...):
        read_view("0" * 16, stored)


async def test_a_round_is_begun_if_its_federation_had_exactly_the_rounds_that_it_was_planned_after(
    server: Server, formed: Party, announced: list[str]
) -> None:
    database, round_id = server.coordinator.database, await formed.open_round(server)
    attempt = server.live(round_id).attempt
    assert [await begin_round(database, attempt, 1.0, before) for before in (0, 1)] == [False] * 2
    await carry_out(database, delete(rounds))
    announced.clear()
    begun = [(await begin_round(database, attempt, 1.0, before), list(announced)) for before in (1, 0)]
    assert begun == [(False, []), (True, [formed.federation])]
    assert await database.read_value(select_round_count(formed.federation)) == 1
    assert await database.read_value(select_round_count("0" * 64)) == 0
    lost = insert(lost_contexts).values(federation=formed.federation, context=attempt.context.hex(), body=b"")
    await carry_out(database, delete(rounds), lost)
    with refused("conflict", ...):
        await begin_round(database, attempt, 1.0, 0)
    assert await database.read_value(select_round_count(formed.federation)) == 0


async def test_a_count_is_read_while_its_row_is_whole(server: Server, counted: tuple[Party, str]) -> None:
    database, view = server.coordinator.database, await server.view(counted[1])
    context = bytes.fromhex(view["context"])
    found = await read_counts(database, [context, bytes(32)])
    assert {each: list(outcome.sums) for each, outcome in found.items()} == {context: COUNTS}
    [row] = await database.read_rows(select(rounds.c.closing, rounds.c.final))
    whole = row._asdict()
    for column, value in whole.items():
        await carry_out(database, update(rounds).values({**whole, column: value[:-1]}))
        assert await read_counts(database, [context]) == {}, column


async def test_only_a_certified_attempt_has_survivors(server: Server, formed: Party, finished: str) -> None:
    database = server.coordinator.database
    context = bytes.fromhex((await server.view(finished))["context"])
    assert [each.member for each in await read_survivors(database, context)] == list(formed.ids)
    await formed.next_period(server)
    erased = await formed.open_round(server)
    live = server.live(erased).attempt.context
    same_name = context[:-1] + bytes([context[-1] ^ 1])
    for unknown in (live, same_name, bytes(32)):
        with refused("not-found", ...):
            await read_survivors(database, unknown)
    await server.cancel(erased)
    assert (await formed.play(server, erased))["state"] == "erased"
    with refused("not-found", ...):
        await read_survivors(database, live)


@pytest.mark.parametrize("served", [(), ("m-0",)], ids=["without events", "with events"])
async def test_a_round_s_end_replaces_its_events_and_appends_a_link(
    server: Server, formed: Party, announced: list[str], served: tuple[str, ...]
) -> None:
    database, other = server.coordinator.database, "0" * 64
    round_id = await formed.open_round(server)
    for member in served:
        await formed.serve(server, round_id, member)
    standing = server.live(round_id).standing
    assert standing is not None
    earlier = [(formed.federation, 0, b"first"), (other, 0, b""), (other, 1, b"")]
    await carry_out(
        database,
        insert(links).values(earlier),
        insert(events).values(("other", 99, 0.0, "x", b"")),
        *(insert(sums).values((each, 99, "", "", False)) for each in ("other", round_id)),
    )
    end = RoundEnd(
        server.live(round_id).current_view(), Erasure(server.live(round_id).attempt.context, ()), None
    )
    first, late = (Journal(database, server.coordinator.blobs, round_id, standing) for _ in range(2))
    announced.clear()
    ended = await first.end_round(end, b"second", audit.Deed(1.0, audit.COORDINATOR_ACTOR, "round ended"))
    assert (ended, first.standing) == (APPENDED_OUTCOME, end)
    assert announced == [round_id, formed.federation]
    own = select(links.c.position, links.c.body).where(links.c.federation == formed.federation)
    assert [tuple(row) for row in await database.read_rows(own)] == [(0, b"first"), (1, b"second")]
    for table in (events, sums):
        assert await database.read_values(select(table.c.round)) == ["other"]
    assert (await server.audited()).entries[-1].action == "round ended"
    assert await late.end_round(end, b"third", audit.Deed(2.0, "x", "again")) == BEHIND_OUTCOME
    assert await late.catch_up() == APPENDED_OUTCOME
    assert isinstance(late.standing, RoundEnd)
