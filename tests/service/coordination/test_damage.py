"""No damaged byte of a chunk or a range enters a signed sum: it is sent or computed again, or the attempt ends and says why."""

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from service.coordination import jobs, solving, summing
from service.coordination.documents import Publication
from service.coordination.jobs import Jobs
from service.coordination.rounds import LiveRound, Round
from service.coordination.scrubbing import find_damaged_blobs
from service.coordination.summing import Memory, Summing, chunk_name
from service.http.problems import problem_of
from service.storage import blobs as storage_blobs
from service.storage.blobs import Blobs
from service.storage.tables import events
from tests.service.conftest import Past
from tests.service.storage.kept import count_damage, run_sql
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server, carry_out, running, wait_until
from tests.support.simulator import After
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault


@pytest.fixture
def _stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add nothing in memory."""
    monkeypatch.setattr(Memory, "take_bytes", lambda *_: False)


@pytest.fixture
def _small(_stored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also write ranges at every second upload."""
    monkeypatch.setattr(summing, "STORED_UPLOADS_MIN", 2)


@dataclass(frozen=True)
class Stored:
    """A blob, with the operations by which a disk or bucket damages it."""

    blobs: Blobs
    name: str

    def read(self) -> bytes:
        return self.blobs.get(self.name)

    def write(self, data: bytes) -> None:
        self.blobs.put(self.name, data)

    def remove(self) -> None:
        self.blobs.delete(self.name)


def flip(blob: Stored, at: int | None = None, bit: int = 0) -> None:
    data = bytearray(blob.read())
    data[len(data) // 2 if at is None else at] ^= 1 << bit
    blob.write(bytes(data))


def lying(server: Server, folder: str, round_id: str) -> list[Stored]:
    """Return the stored chunks, ranges or announcements of a round."""
    blobs = server.coordinator.blobs
    folders = [f"{folder}/{round_id}"]
    if folder == "uploads":
        folders = [f"{folders[0]}/{member}" for member in blobs.list_names(folders[0])]
    return [Stored(blobs, f"{each}/{name}") for each in folders for name in blobs.list_names(each)]


def chunk(server: Server, round_id: str, member: str, index: int) -> Stored:
    return Stored(server.coordinator.blobs, chunk_name(round_id, member, index))


def before(monkeypatch: pytest.MonkeyPatch, method: str, do: Any) -> None:
    """Damage something once, just before the coordinator continues with a round."""
    true, left = getattr(Jobs, method), [do]

    async def first(self: Jobs, round_: Round, *arguments: Any) -> None:
        if left:
            left.pop()(round_)
        await true(self, round_, *arguments)

    monkeypatch.setattr(Jobs, method, first)


def says_whose(view: dict[str, Any], member: str, index: int) -> None:
    fault = view["fault"]
    assert (fault["cause"], fault["parties"]) == ("storage-damaged", ["coordinator"])
    assert re.search(rf"chunk {index} .*{member}\b", fault["detail"])


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("how", ["flipped", "missing"])
async def test_a_chunk_damaged_while_uploads_come_in_is_asked_for_again(
    server: Server, formed: Party, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id, damaged = await formed.open_round(server), count_damage("chunk")
    path = chunk(server, round_id, "m-1", 1)
    before(monkeypatch, "_add_range", lambda _: flip(path) if how == "flipped" else path.remove())
    for member in formed.ids[:2]:
        await formed.serve(server, round_id, member)
    asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-1", params={"after": 1, "wait_s": 10})
    assert asked.status_code == 200
    shown = (await server.client.get(f"/v1/rounds/{round_id}/uploads/m-1")).json()
    assert shown["missing"] == [1]
    assert count_damage("chunk") == damaged + 1
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)


@pytest.mark.usefixtures("_stored")
async def test_a_chunk_damaged_later_ends_the_attempt_in_words(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    flip(chunk(server, round_id, "m-3", 1))
    view = await formed.play(server, round_id)
    assert view["state"] == "failed"
    says_whose(view, "m-3", 1)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("how", ["missing", "another's"])
async def test_a_damaged_range_is_made_again(
    server: Server, formed: Party, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(round_: Round) -> None:
        first, second, *_ = lying(server, "sums", round_.id)
        first.remove() if how == "missing" else first.write(second.read())

    found = count_damage("range")
    for method in ("_unmask_range", "_solve_round"):  # masked, and then not
        before(monkeypatch, method, damage)
    round_id = await formed.done(server)
    await formed.check_result(server, round_id)
    assert count_damage("range") == found + 2


@pytest.mark.usefixtures("_small")
async def test_a_range_whose_row_is_damaged_is_made_again(stopped: Callable[[str], Past]) -> None:
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "checking")
        await wait_until(lambda: lying(server, "sums", round_id))
    run_sql(past.folder, "UPDATE sums SET members = 'x' || members")
    found = count_damage("range")
    async with running(past.folder) as server:
        assert (await party.play(server, round_id))["state"] == "done"
        await party.check_result(server, round_id)
    assert count_damage("range") > found


def published(server: Server, round_id: str) -> list[Stored]:
    """Return everything that an ended round keeps."""
    blobs = server.coordinator.blobs
    folders = (f"results/{round_id}", f"transcripts/{round_id}")
    return [Stored(blobs, f"{each}/{name}") for each in folders for name in blobs.list_names(each)]


@pytest.mark.parametrize(("at", "piece_bytes"), [(0, storage_blobs.READ_PIECE_BYTES), (-1, 64)])
async def test_nothing_that_storage_has_changed_or_lost_is_served(
    server: Server, formed: Party, finished: str, at: int, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is restored. A long document, of many pieces, is compared before any is sent."""
    monkeypatch.setattr(storage_blobs, "READ_PIECE_BYTES", piece_bytes)
    found, blobs = count_damage("document"), published(server, finished)

    async def answers() -> set[tuple[int, str]]:
        names = ("result/weights", "result/sums", "result/evictions", "transcript")
        shown = [await server.client.get(f"/v1/rounds/{finished}/{name}") for name in names]
        return {(200, "") if answer.status_code == 200 else refusal(answer) for answer in shown}

    for blob in blobs:
        flip(blob, at)
    assert await answers() == {(500, "storage-damaged")}
    assert count_damage("document") == found + 4
    damaged = (await server.client.get("/readyz")).json()["damaged"]
    assert set(damaged) >= {blob.name for blob in blobs if "material" not in blob.name}
    assert blobs[0].name in (await server.client.get("/health")).text
    for blob in blobs:
        flip(blob, at)
    assert await answers() == {(200, "")}
    assert (await server.client.get("/readyz")).json()["damaged"] == []
    for blob in blobs:
        blob.remove()
    assert await answers() == {(500, "storage-damaged")}
    assert (await server.anonymous().get(f"/rounds/{finished}")).status_code == 200


async def test_what_nobody_reads_is_compared_too(server: Server, formed: Party, finished: str) -> None:
    await formed.next_period(server)
    live = await formed.open_round(server)
    await formed.serve(server, live, "m-0")
    blobs = [*published(server, finished), *lying(server, "events", live), *lying(server, "uploads", live)]
    flip(blobs[0])
    for blob in blobs[1:]:
        blob.remove() if blob.name.startswith("results") else flip(blob)
    server.clock.ahead_s += jobs.SCRUB_DELAY_S
    server.coordinator.scheduler.wake_up()
    names = {blob.name for blob in blobs}
    await wait_until(lambda: not names - set(server.coordinator.list_damaged()))


async def test_what_a_round_deletes_at_its_end_is_not_damaged(server: Server, formed: Party) -> None:
    """The round ends while its announcements are compared."""
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    coordinator, found = server.coordinator, count_damage("document")

    async def end_round(_size: int) -> None:
        await formed.play(server, round_id)
        await server.tidy(round_id)

    damaged = find_damaged_blobs(coordinator.database, coordinator.blobs, coordinator.key.public, end_round)
    assert [name async for name in damaged] == []
    assert count_damage("document") == found
    assert coordinator.list_damaged() == ()


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("seed", "flips"), [(0, 6), pytest.param(1, 12, marks=pytest.mark.slow)])
async def test_no_flip_is_in_a_signed_sum(
    server: Server, formed: Party, seed: int, flips: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits flip anywhere in both kinds of blobs, at any moment of a round."""
    rng, flipped, ends = random.Random(seed), list[str](), set[str]()
    true = Summing._replace_blob

    def strike(round_id: str) -> None:
        stored = {folder: lying(server, folder, round_id) for folder in ("uploads", "sums")}
        if any(stored.values()) and len(flipped) < flips:
            folder = rng.choice([folder for folder, blobs in stored.items() if blobs])
            blob = rng.choice(stored[folder])
            flip(blob, rng.randrange(len(blob.read())), rng.randrange(8))
            flipped.append(folder)

    async def replaced(self: Summing, *arguments: Any) -> None:
        await true(self, *arguments)
        if rng.random() < 0.3:
            strike(self._round)

    monkeypatch.setattr(Summing, "_replace_blob", replaced)
    while len(flipped) < flips or "done" not in ends:
        round_id = await formed.open_round(server)

        async def acknowledged(_label: str, name: str = round_id) -> None:
            if rng.random() < 0.05:
                strike(name)

        formed.on_ack = acknowledged
        view = await formed.play(server, round_id)
        ends.add(view["state"])
        if view["state"] == "done":
            await formed.check_result(server, round_id)
        else:
            assert view["fault"]["cause"] == "storage-damaged"


def announcements(server: Server, round_id: str) -> list[Stored]:
    """Return a live round's announcements, in the order in which they came."""
    query = "SELECT body FROM events WHERE round = ? AND kind = 'aside' ORDER BY number"
    bodies = run_sql(server.folder, query, round_id)
    return [Stored(server.coordinator.blobs, f"events/{round_id}/{body.hex()}") for (body,) in bodies]


async def stalled_at(past: Past, state: str, damaged: str, place: int = 2) -> str:
    """Damage an announcement or rows of a round in this state, and stop the coordinator."""
    folder, party = past.folder, past.party
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, state)
        announcement = announcements(server, round_id)[place]
        if damaged == "flipped":
            flip(announcement)
        elif damaged == "lost":
            announcement.remove()
    damage_rows(folder, round_id, damaged)
    return round_id


async def check_stalled(server: Server, party: Party, round_id: str) -> dict[str, Any]:
    """The round is shown, and says what leads out of it; what else the federation shows can be read."""
    view = await server.view(round_id)
    assert (view["ended"], view["fault"]["cause"], view["fault"]["parties"]) == (
        False,
        "storage-damaged",
        ["coordinator"],
    )
    for path in (f"/rounds/{round_id}", f"/federations/{party.federation}", f"/cohorts/{party.cohort}", "/"):
        assert (await server.client.get(path)).status_code == 200, path
    assert f"round {round_id}" in (await server.client.get("/readyz")).json()["damaged"]
    return view


@pytest.mark.parametrize(
    ("state", "damaged", "place"), [("checking", "flipped", 0), ("revealing", "lost", 3)]
)
async def test_a_lost_announcement_is_asked_for_again(
    stopped: Callable[[str], Past], state: str, damaged: str, place: int
) -> None:
    past = stopped("formed")
    party, round_id = past.party, await stalled_at(past, state, damaged, place)
    async with running(past.folder) as server:
        await check_stalled(server, party, round_id)
        # Others' answers wait for it.
        late = await party.announce(server, round_id, party.ids[place - 1])
        assert refusal(late) == (503, "unavailable")
        member = party.ids[place]
        assert (await server.opening(round_id, member)).cohort.hex() == party.cohort
        sent = await party.announce(server, round_id, member)
        assert sent.json()["missing"] == []
        assert (await server.view(round_id))["state"] == state
        assert (await party.play(server, round_id))["state"] == "done"
        await party.check_result(server, round_id)


@pytest.mark.parametrize(("state", "damaged"), [("checking", "lost"), ("freezing", "row")])
async def test_a_round_with_a_damaged_event_can_be_cancelled(
    stopped: Callable[[str], Past], state: str, damaged: str
) -> None:
    past = stopped("formed")
    party, round_id = past.party, await stalled_at(past, state, damaged)
    async with running(past.folder) as server:
        await check_stalled(server, party, round_id)
        cancelled = await server.cancel(round_id)
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "voiding")
    async with running(past.folder) as server:  # and what it left out stays left out
        assert (await party.play(server, round_id))["state"] == "voided"
        await party.open_round(server)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["recovered", "voided"])
async def test_a_round_with_a_damaged_event_before_its_end_can_be_cancelled(
    stopped: Callable[[str], Past], monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    past = stopped("formed")
    party = past.party

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    async def forget(*_: object) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(solving, "solve_sum", broken)
        patched.setattr(LiveRound, "_end_without_sum", forget)
        async with running(past.folder) as server:
            round_id = await party.open_round(server)
            if is_cancelled:
                await party.play_until(server, round_id, "checking")
                await server.cancel(round_id)
                for member in party.ids:
                    await party.serve(server, round_id, member)
            else:
                await party.play_until(server, round_id, "recovered")
    [(number,)] = run_sql(past.folder, "SELECT max(number) + 1 FROM events WHERE round = ?", round_id)
    damaged = "INSERT INTO events VALUES (?, ?, 0, 'refused', ?)"
    run_sql(past.folder, damaged, round_id, number, b"not JSON")
    async with running(past.folder) as server:
        await check_stalled(server, party, round_id)
        async with asyncio.timeout(10):
            await server.live(round_id).store_result(Publication(), 1.0)  # of work that began earlier
            await server.cancel(round_id)
            assert (await server.until(round_id))["ended"]


@pytest.mark.parametrize("state", ["done", "failed"])
async def test_a_sum_of_events_that_another_process_has_made_void_ends_nothing(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """It was computed while the other process could not read one of them, and rewound."""

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(solving, "solve_sum", broken)
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "recovered")
    live = server.live(round_id)
    assert live.standing is not None
    row = {"round": round_id, "number": live.standing.seen, "at_s": 0.0, "kind": "rewind", "body": b"1"}
    await carry_out(server.coordinator.database, insert(events).values(row))
    if state == "done":
        await live.store_result(Publication(), 1.0)
    else:
        await live.store_failure(problem_of(PeerFault(Cause.STORAGE_DAMAGED, "a test")), 1.0)
    assert (live.state, live.end) == ("collecting", None)


@pytest.mark.parametrize(
    ("state", "damaged", "end"), [("checking", "row", "erased"), ("revealing", "lost", "lost")]
)
@pytest.mark.usefixtures("six")
async def test_a_round_with_a_damaged_event_ends_after_its_latest_end(
    stopped: Callable[[str], Past], state: str, damaged: str, end: str
) -> None:
    """By reports; if decryptors have revealed, by the admin's Lost."""
    past = stopped("formed")
    party, round_id = past.party, await stalled_at(past, state, damaged)
    async with running(past.folder) as server:
        if end == "lost":
            party.drop = dict.fromkeys(("m-3", "m-4", "m-5"), After.VOTE)
        await server.pass_time(await check_stalled(server, party, round_id))
        await server.until(round_id, "erasing")
        view = await party.play(server, round_id)
        if end == "lost":
            assert view["state"] == "erasing"
            view = await party.lose(server, round_id)
        assert (view["state"], view["ended"]) == (end, True)
        assert (await server.client.get(f"/v1/rounds/{round_id}/transcript")).status_code == 200
        await party.open_round(server)


def damage_rows(folder: Path, round_id: str, damaged: str) -> None:
    """Flip a bit of a round's first answer, or of its first event; or lose one of its events."""
    if damaged == "rows":
        run_sql(folder, "DELETE FROM events WHERE round = ? AND number = 4", round_id)
    elif damaged == "row":
        query = "SELECT rowid, body FROM events WHERE round = ? ORDER BY kind != 'message', number"
        row, body = run_sql(folder, query, round_id)[0]
        flipped = body[:-1] + bytes([body[-1] ^ 1])
        run_sql(folder, "UPDATE events SET body = ? WHERE rowid = ?", flipped, row)
