"""Two coordinators on one database: members may use either, and simultaneous work is done once."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, literal, select, update

from service.coordination import changes, summaries
from service.coordination.journal import EVENTS_FOLDER
from service.coordination.rounds import EndedRound
from service.storage.dialects import Postgres
from service.storage.tables import cohorts, leases, rounds
from tests.service.pages.gallery import browser
from tests.support.calls import record_calls
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal, refused
from tests.support.servers import Servers
from tests.support.serving import Clock, Server, carry_out, read_metric, two, wait_until
from veilsum.protocol.member import Ready
from veilsum.protocol.messages import Cards, Ciphertexts, Lost

pytestmark = pytest.mark.usefixtures("on_servers")


@pytest.fixture
def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no replica hear another's notifications, or poll for changes."""

    async def nothing(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Postgres, "listen_for_changes", nothing)
    monkeypatch.setattr(changes, "CHANGES_POLL_S", 3600.0)
    monkeypatch.setattr(summaries, "COUNTS_KEPT_S", 0.0)


async def test_members_may_talk_to_either(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even both at once: each sends each chunk to both. One cleans up, and both learn of the end."""
    async with two(tmp_path / "data") as (one, other, both):
        round_id = await party.begun(both)
        forgotten = record_calls(monkeypatch, Postgres, "erase_deleted", id)

        async def upload(member: str) -> None:
            where = f"/v1/rounds/{round_id}/uploads/{member}"
            await party.announce(both, round_id, member)
            answers = await asyncio.gather(
                *(
                    each.client.put(f"{where}/chunks/{index}", content=data)
                    for index, data in enumerate(party.chunks[member])
                    for each in (one, other)
                )
            )
            assert all(answer.is_success for answer in answers)

        await asyncio.gather(*map(upload, party.ids))
        assert set((await other.view(round_id))["uploaded"]) == set(party.ids)
        assert (await party.play(both, round_id))["state"] == "done"
        await party.check_result(both, round_id)
        assert await one.view(round_id) == await other.view(round_id)
        assert party.heard() == set(party.ids)
        for replica in (one, other):  # either of them cleans up
            await replica.tidy(round_id)
        for replica in (one, other):
            assert replica.coordinator.blobs.list_names("uploads") == ()
            assert isinstance(replica.coordinator.catalogue.rounds[round_id], EndedRound)
        assert len(forgotten) == 1
        actions = [each["action"] for each in (await one.client.get("/v1/audit")).json()["entries"]]
        assert actions.count("uploads deleted") == 1
        assert len(await other.coordinator.federations.read_links(party.federation)) == 1
        async with asyncio.timeout(10):  # given back as soon as the last work is done
            while await held_leases(one):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("_deaf")
async def test_a_round_that_another_replica_has_deleted_leaves_memory(tmp_path: Path, party: Party) -> None:
    """The admin closes it at a replica that can't read it, because its row is damaged."""
    async with two(tmp_path / "data") as (one, other, _):
        await party.begin(one)
        lost = await party.open_round(one)
        live = one.live(lost)
        polled = {"after": live.position.version, "wait_s": 20.0}
        polling = asyncio.create_task(one.client.get(f"/v1/rounds/{lost}", params=polled))
        await carry_out(one.coordinator.database, update(rounds).values(opening=b"damaged"))
        message = Lost.make_signed(party.admin, context=live.attempt.context)
        async with other.signing("admin", party.admin) as admin:
            closed = await admin.post(f"{party.where}/lost", content=message.to_bytes())
        assert closed.status_code == 204
        assert refusal(await one.cancel(lost)) == (404, "not-found")
        async with asyncio.timeout(10):
            await polling
        assert refusal(await one.client.get(f"/v1/rounds/{lost}")) == (404, "not-found")
        assert (await one.cohort(party.cohort))["rounds"] == []
        one.clock.ahead_s += 1.0  # an opening of the same second has the context that is closed now
        following = await party.open_round(one)
        assert (await one.cohort(party.cohort))["rounds"] == [following]
        assert (await party.play(one, following))["state"] == "done"


@pytest.mark.usefixtures("_deaf")
@pytest.mark.parametrize("act", ["open", "cancel", "extend", "expire", "refresh"])
async def test_nothing_is_done_with_a_round_that_another_replica_has_deleted(
    tmp_path: Path, party: Party, act: str
) -> None:
    async with two(tmp_path / "data") as (one, other, _):
        await party.begin(one)
        lost = await party.open_round(one)
        live = one.live(lost)
        await carry_out(one.coordinator.database, update(rounds).values(opening=b"damaged"))
        message = Lost.make_signed(party.admin, context=live.attempt.context)
        await other.coordinator.close_unknown(party.federation, message)
        one.clock.ahead_s += 1.0
        if act == "open":
            following = await party.open_round(other)
            assert (await one.view(following))["state"] == "collecting"
        elif act == "refresh":
            await one.coordinator.catalogue.refresh_federation(party.federation)
        else:
            acts = {
                "cancel": lambda: live.cancel(0.0, "a test"),
                "extend": lambda: live.extend_deadline(0.0, (live.position.deadline_s or 0.0) + 60),
                "expire": lambda: live.pass_deadline(live.attempt.terms.latest_end_s),
            }
            with refused("not-found", ...):
                await acts[act]()
        assert lost not in one.coordinator.catalogue.rounds
        assert live not in one.coordinator.catalogue.live_rounds()
        if act != "open":
            await party.open_round(one)


@pytest.mark.usefixtures("_deaf")
async def test_a_cohort_learns_how_a_round_ended_before_it_shows_the_next(
    tmp_path: Path, party: Party
) -> None:
    """A request for the next round is the first that a replica hears of the end."""
    async with two(tmp_path / "data") as (one, other, _):
        await party.begin(other)
        ended = await party.open_round(other)
        cohort = await one.coordinator.catalogue.find_cohort(party.cohort)
        assert [brief.state for brief in cohort.rounds] == ["collecting"]
        await other.cancel(ended)
        view = await party.play(other, ended)
        assert view["ended"]
        following = await party.open_round(other)
        assert (await one.view(following))["state"] == "collecting"
        assert [(brief.id, brief.state) for brief in cohort.rounds] == [
            (ended, view["state"]),
            (following, "collecting"),
        ]


@pytest.mark.usefixtures("_deaf")
async def test_a_stalled_round_is_shown_as_such_and_wakes_long_polls(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, _):
        round_id = await party.begun(one)
        await party.serve(one, round_id, "m-0")
        before = await other.view(round_id)
        waiting = {"after": before["version"], "wait_s": 20.0}
        polling = asyncio.create_task(other.client.get(f"/v1/rounds/{round_id}", params=waiting))
        await party.announce(one, round_id, "m-1")
        lost = hashlib.sha256(party.upload_of("m-1")).hexdigest()
        other.coordinator.blobs.delete(f"{EVENTS_FOLDER}/{round_id}/{lost}")
        stalled = await other.view(round_id)
        assert stalled["fault"]["cause"] == "storage-damaged"
        async with asyncio.timeout(10):
            assert (await polling).json() == stalled
        sent = await party.announce(other, round_id, "m-1")
        assert sent.status_code == 200
        assert await other.view(round_id) == await one.view(round_id)
        assert (await party.play(other, round_id))["state"] == "done"


async def held_leases(server: Server) -> list[Any]:
    return list(await server.coordinator.database.read_rows(select(leases)))


async def test_what_both_open_at_once_is_opened_once(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.found(both)
        opened = await asyncio.gather(
            *(
                each.client.post(
                    f"{party.where}/cohorts", json={"study": party.study.hash.hex(), "period": party.period}
                )
                for each in (one, other, one, other)
            )
        )
        assert len({answer.json()["cohort"] for answer in opened}) == 4
        party.cohort, party.counter = opened[0].json()["cohort"], int(opened[0].json()["counter"])
        await party.enrol(both)
        answers = await asyncio.gather(*(party.try_round(each) for each in (one, other, one, other)))
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
        assert {answer.json()["cause"] for answer in answers if answer.status_code == 409} == {"conflict"}
        assert len(await one.coordinator.database.read_rows(select(rounds))) == 1


async def test_of_two_rosters_with_one_number_the_first_is_published(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.found(both)
        for number in range(2, 6):
            answers = await asyncio.gather(
                *(
                    each.client.put(
                        f"{party.where}/roster",
                        content=party.make_roster(party.roster.coordinator, number, name=name).to_bytes(),
                    )
                    for each, name in ((one, "one"), (other, "other"))
                )
            )
            assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_a_replica_whose_bucket_stalls_hears_of_other_federations(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    another, release = Party(FOUR, admin_seed=b"another federation of this one.."), threading.Event()
    monkeypatch.setattr(changes, "CHANGES_POLL_S", 3600.0)
    async with two(tmp_path / "data") as (one, other, both):
        stalled, heard = [await each.begun(both) for each in (party, another)]
        _, view = [await other.view(each) for each in (stalled, heard)]
        get, asked = other.coordinator.blobs.get, asyncio.Event()
        loop = asyncio.get_running_loop()

        def stalling(name: str) -> bytes:
            loop.call_soon_threadsafe(asked.set)
            assert release.wait(60)
            return get(name)

        monkeypatch.setattr(other.coordinator.blobs, "get", stalling)
        try:
            await party.serve(one, stalled, "m-0")
            await asyncio.wait_for(asked.wait(), 20)
            after = {"after": view["version"], "wait_s": 20}
            waiting = asyncio.create_task(other.client.get(f"/v1/rounds/{heard}", params=after))
            await asyncio.sleep(0.2)
            later = {"deadline_s": view["deadline_s"] + 60}
            assert (await one.client.post(f"/v1/rounds/{heard}/extend", json=later)).is_success
            assert (await waiting).json()["version"] > view["version"]
        finally:
            release.set()


async def test_members_pair_at_either_side_by_side(tmp_path: Path, party: Party) -> None:
    """Each sends its pairing to both at once; each waits at one of them until all have paired."""
    async with two(tmp_path / "data") as (one, other, both):
        await party.send_cards(both)
        pairings = {member: await party.make_pairing(both, member) for member in party.ids}
        waiting = [
            asyncio.create_task(party.send_pairing(replica, member, sent, wait_s=wait_s))
            for member, sent in pairings.items()
            for replica, wait_s in ((one, 20.0), (other, 20.0))
        ]
        shown = [(await answer).content for answer in waiting]
        assert shown[::2] == shown[1::2]
        for member, content in zip(party.ids, shown[::2], strict=True):
            ciphertexts = Ciphertexts.from_bytes(content)
            party.phases[member], _ = party.phases[member].receive(
                ciphertexts, party.keys[member], both.clock()
            )
        views = [await each.cohort(party.cohort) for each in (one, other)]
        assert views[0] == views[1]
        assert (views[0]["state"], views[0]["version"]) == ("formed", 2 * len(party.ids))
        assert all(isinstance(phase, Ready) for phase in party.phases.values())


@pytest.mark.usefixtures("_deaf", "six")
async def test_the_last_pairing_and_the_end_of_the_window_come_at_once(tmp_path: Path, party: Party) -> None:
    """One replica takes the pairing while the other ends the window: whichever is first, both see the same."""
    async with two(tmp_path / "data") as (one, other, both):
        for number in range(2):
            if number:
                await party.open_cohort(both, period=f"period-{number}")
                await party.enrol(both, party.ids)
            else:
                await party.send_cards(both)
            for member in party.ids[:5]:
                await party.pair(both, member)
            last = await party.make_pairing(one, "m-5")
            ending = await other.coordinator.catalogue.find_cohort(party.cohort)
            acts = [party.send_pairing(one, "m-5", last), ending.leave_out_missing(ending.deadline_s)]
            answers = await asyncio.gather(*(acts if number % 2 else acts[::-1]))
            [answer] = [each for each in answers if each is not None]
            views = [await each.cohort(party.cohort) for each in (one, other)]
            assert views[0] == views[1]
            if views[0]["state"] == "formed":
                assert Ciphertexts.from_bytes(answer.content).manifest == last.manifest
            else:
                assert views[0]["left_out"] == ["m-5"]
                assert refusal(answer) == (422, "unknown-member")
            await party.take_manifest(both)
            assert (await both.cohort(party.cohort))["state"] == "formed"


@pytest.mark.usefixtures("_deaf", "six")
async def test_a_replica_that_read_an_old_cohort_holds_no_newer_pairings_against_its_members(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the cohort, then another makes a manifest, and then it reads the pairings."""
    async with two(tmp_path / "data") as (one, other, _):
        await party.send_cards(one)
        behind = await other.coordinator.catalogue.find_cohort(party.cohort)
        for member in party.ids[:5]:
            await party.pair(one, member)
        first = party.phases["m-0"].messages_to_resend()[0]
        row = await one.coordinator.database.read_row(select(cohorts).where(cohorts.c.id == party.cohort))
        ahead = await one.coordinator.catalogue.find_cohort(party.cohort)
        await ahead.leave_out_missing(ahead.deadline_s)
        for member in party.ids[:2]:
            await party.pair(one, member)
        read = other.coordinator.database.read

        async def read_late(work: Callable[[Any], Any]) -> Any:
            return await read(lambda connection: work(Late(connection, row)))

        with monkeypatch.context() as patched:
            patched.setattr(other.coordinator.database, "read", read_late)
            await behind.refresh()
        assert behind.current_view("sum").paired == ()
        answer = await party.send_pairing(other, "m-0", first)
        assert Cards.from_bytes(answer.content).manifest.members == party.ids[:5]
        assert await one.cohort(party.cohort) == await other.cohort(party.cohort)


class Late:
    """A connection whose first query finds a row as it was."""

    def __init__(self, connection: Connection, row: Any) -> None:
        self._connection, self._row = connection, row

    def execute(self, *query: Any) -> Any:
        row, self._row = self._row, None
        return self._connection.execute(*query) if row is None else SimpleNamespace(one=lambda: row)


async def test_ciphertexts_are_in_the_order_of_ids_whatever_the_database_s(
    tmp_path: Path, servers: Servers
) -> None:
    """Where a language ignores hyphens, `a-c` comes after `ab`."""
    servers.options = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-ka-shifted'"
    party = Party(("a-c", "ab", "b-a", "ba"))
    async with two(tmp_path / "data") as (_, other, both):
        collated = select(literal("a-c") < literal("ab"))
        assert await other.coordinator.database.read_value(collated) is False
        await party.send_cards(both)
        for member in reversed(party.ids):
            await party.pair(both, member)
        await party.take_manifest(both)
        assert all(isinstance(phase, Ready) for phase in party.phases.values())


async def test_a_defect_that_one_change_finds_leaves_nobody_deaf(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHANGES_POLL_S", 3600.0)
    async with two(tmp_path / "data") as (one, other, both):
        real, told = other.coordinator.catalogue.refresh_federation, asyncio.Event()

        async def broken(_: str) -> None:
            told.set()
            raise ZeroDivisionError

        monkeypatch.setattr(other.coordinator.catalogue, "refresh_federation", broken)
        await party.begin(one)
        await asyncio.wait_for(told.wait(), 10)
        monkeypatch.setattr(other.coordinator.catalogue, "refresh_federation", real)
        round_id = await party.open_round(one)
        await wait_until(lambda: round_id in other.coordinator.catalogue.rounds)
        assert (await both.client.get("/readyz")).status_code == 200


async def test_what_a_dead_replica_has_left_is_swept_and_nothing_that_is_still_to_be_used(
    tmp_path: Path, party: Party
) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.begin(both)
        blobs, jobs = one.coordinator.blobs, one.coordinator.jobs

        async def opened() -> str:
            round_id = await party.open_round(both)
            await party.seal_all(both, round_id)
            return round_id

        first = await opened()
        chunk = f"uploads/{first}/m-0/0"
        other.coordinator.blobs.put(chunk, party.chunks["m-0"][0])  # and is about to say so
        await jobs.sweep_storage()
        assert blobs.get(chunk) == party.chunks["m-0"][0]
        await both.cancel(first)
        assert (await party.play(both, first))["state"] == "voided"
        second = await opened()
        assert (await party.play(both, second))["state"] == "done"
        for replica in (one, other):
            for round_id in (first, second):
                await replica.coordinator.catalogue.find_round(round_id)
                await replica.tidy(round_id)
        for name in (f"{first}/m-1/0", f"{second}/m-1/0"):
            other.coordinator.blobs.put(f"uploads/{name}", b"late")
        other.coordinator.blobs.put(f"sums/{second}/0-late", b"late")
        other.coordinator.blobs.put(f"results/{first}/sums", b"late")
        await jobs.sweep_storage()
        for round_id in (first, second):
            await one.tidy(round_id)
        assert [blobs.list_names(folder) for folder in ("uploads", "sums", "results")] == [(), (), (second,)]
        await party.check_result(both, second)


async def test_a_replica_whose_machine_has_the_wrong_time_ends_nobodys_round(
    tmp_path: Path, party: Party
) -> None:
    wrong = Clock(lambda: time.time() + 7200)
    async with two(tmp_path / "data", others=wrong) as (one, other, both):
        await party.begin(both)
        round_id = await party.open_round(other)
        assert 590 < (await one.view(round_id))["deadline_s"] - time.time() < 610
        await party.serve(both, round_id, "m-0")
        other.coordinator.scheduler.wake_up()
        await asyncio.sleep(0.3)
        assert (await one.view(round_id))["state"] == "collecting"
        assert (await party.play(both, round_id))["state"] == "done"
        refused = (await other.client.get("/readyz")).json()
        assert refused["detail"].startswith("clock: ")
        assert "7200 s" in refused["detail"]
        # Both replicas set the process's gauge, each when it looks, which the first may do between a look and its reading here.
        async with asyncio.timeout(10):
            while read_metric("veilsum_clock_difference_seconds") != pytest.approx(7200, abs=5):
                await wrong.read_clock(other.coordinator.database)
        assert abs((await one.client.get("/readyz")).json()["clock_difference_s"]) < 5


@pytest.mark.slow
@pytest.mark.usefixtures("_deaf")
async def test_every_page_and_count_is_right_at_a_replica_that_has_heard_nothing(
    tmp_path: Path, party: Party
) -> None:
    async with two(tmp_path / "data") as (one, other, _), browser(other) as visitor:

        async def shown(address: str) -> str:
            answer = await visitor.get(address)
            assert answer.status_code == 200, address
            return answer.text

        async def opened() -> str:
            round_id = await party.open_round(one)
            opening = await one.opening(round_id, "m-0")
            for member in party.ids:
                phase = party.phases[member]
                party.phases[member], _ = phase.receive(opening, party.keys[member], time.time())
            return round_id

        async def cancel(round_id: str) -> None:
            await one.cancel(round_id)

        # Before each look something happens that the other has not seen yet.
        await party.begin(one)
        federation = f"/federations/{party.federation}"
        assert party.cohort in await shown(federation)
        first = await opened()
        assert 'veilsum_rounds{state="collecting"} 1.0' in await shown("/metrics")
        await cancel(first)
        assert "<dt>Rounds ending VOID</dt><dd>1</dd>" in await shown("/health")
        assert (await party.play(one, first))["state"] == "voided"
        assert f"/rounds/{first}" in await shown("/?state=voided")
        second = await opened()
        assert f"/rounds/{second}" in await shown(f"/cohorts/{party.cohort}")
        await cancel(second)
        assert (await party.play(one, second))["state"] == "voided"
