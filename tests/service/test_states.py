"""The table of docs/operations.md: every state is reached, and left by the way that its row names."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import text

from service.coordination.jobs import Jobs
from service.coordination.repairing import repair_database
from service.settings import Settings
from service.storage.dialects import Sqlite
from tests.cli.test_help import PATHS
from tests.service.conftest import Past
from tests.service.coordination.test_damage import Stored, announcements, damage_rows, flip, published
from tests.service.coordination.test_ends import overdue
from tests.service.coordination.test_readiness import failing
from tests.service.storage.kept import flip as flip_row
from tests.service.storage.kept import run_sql
from tests.support.party import SIX, Party
from tests.support.refusals import refusal
from tests.support.serving import Server, carry_out, running
from veilsum.protocol.messages import Lost
from veilsum.protocol.rest import CohortState, RoundView

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
[TABLE] = re.findall(r"^\| what \| state \|.*?\n\|---.*?\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
ROWS = {
    (what, state.strip("`")): way
    for what, state, _, way in (
        [cell.strip() for cell in row.strip("|").split("|")] for row in TABLE.splitlines()
    )
}
Way = Callable[[Path, Party, pytest.MonkeyPatch], Awaitable[None]]
WAYS = dict[tuple[str, str], Way]()


def leaves(what: str, *states: str) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Register how a thing is brought into states and out of them; a function of several is also given the state."""

    def register(way: Callable[..., Awaitable[None]]) -> Any:
        for state in states:
            assert (what, state) not in WAYS
            more = (state,) if len(states) > 1 else ()
            WAYS[what, state] = lambda *given, more=more: way(*given, *more)
        return way

    return register


def test_the_table_names_every_state_and_commands_that_exist(server: Server) -> None:
    states = {state for what, state in ROWS if what == "round"}
    assert states >= {*get_args(RoundView.model_fields["state"].annotation)}
    assert {state for what, state in ROWS if what == "cohort"} == {*get_args(CohortState)}
    assert {state for what, state in ROWS if what == "process"} >= {*server.app.state.readiness.names}
    for way in ROWS.values():
        for command in re.findall(r"`veilsum ([a-z ]+)`", way):
            assert tuple(command.split()) in PATHS, command
    assert ROWS.keys() == WAYS.keys()


@pytest.mark.parametrize(("what", "state"), ROWS)
async def test_every_state_is_left_by_its_way(
    tmp_path: Path, stopped: Callable[[str], Past], monkeypatch: pytest.MonkeyPatch, what: str, state: str
) -> None:
    """A way of a round begins with a formed cohort, a federation's with a finished round, the others with nothing."""
    begins = {"round": "formed", "federation": "finished"}.get(what)
    past = stopped(begins) if begins else Past(tmp_path / "data", Party(SIX))
    await WAYS[what, state](past.folder, past.party, monkeypatch)


async def cancel(server: Server, round_id: str) -> str:
    """Do what `veilsum operator round cancel` does."""
    answer = await server.cancel(round_id)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["state"])


async def goes_on(server: Server, party: Party) -> None:
    """Do what `veilsum operator run` does."""
    await party.open_round(server)


@leaves("round", "collecting", "checking", "freezing", "revealing")
async def _cancel_phase(folder: Path, party: Party, _patch: pytest.MonkeyPatch, state: str) -> None:
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, state)
        assert await cancel(server, round_id) == ("failed" if state == "revealing" else "voiding")
        again = await server.cancel(round_id)
        assert again.status_code == (409 if state == "revealing" else 200)
        view = await party.play(server, round_id)
        # Once the survivors are certified VOID can't be signed any more; nobody signs it before an opening.
        assert view["state"] == {"revealing": "failed", "collecting": "erased"}.get(state, "voided")
        assert view["fault"]["cause"] == "cancelled"
        assert refusal(await server.cancel(round_id)) == (409, "wrong-phase")
        following = await party.try_round(server)
        assert following.status_code == (409 if state == "revealing" else 201)


@leaves("round", "recovered")
async def _cancel_arithmetic(folder: Path, party: Party, patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        await asyncio.Event().wait()

    patch.setattr(Jobs, "_unmask_range", nothing)
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "recovered")
        assert await cancel(server, round_id) == "failed"


@leaves("round", "voiding")
async def _vote(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "checking")
        assert await cancel(server, round_id) == "voiding"
        assert (await party.play(server, round_id))["state"] == "voided"
        round_id = await party.open_round(server)
        await cancel(server, round_id)
        await server.pass_time(await server.view(round_id))
        assert (await server.view(round_id))["state"] == "erasing"


@leaves("round", "erasing", "lost")
async def _close(folder: Path, party: Party, _patch: pytest.MonkeyPatch, state: str) -> None:
    async with running(folder) as server:
        round_id = await overdue(server, party)
        assert (await party.lose(server, round_id))["state"] == "lost"
        if state == "lost":
            party.drop = {}
            await goes_on(server, party)


@leaves("round", "done", "voided", "erased")
async def _run(folder: Path, party: Party, _patch: pytest.MonkeyPatch, state: str) -> None:
    async with running(folder) as server:
        round_id = await party.open_round(server)
        if state != "done":
            await party.play_until(server, round_id, "checking")
            await cancel(server, round_id)
        if state == "erased":
            await server.pass_time(await server.view(round_id))
        assert (await party.play(server, round_id))["state"] == state
        await goes_on(server, party)


@leaves("round", "failed")
async def _repeat(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "revealing")
        assert await cancel(server, round_id) == "failed"
        repeated = await party.try_cohort(server, repeats=(await server.view(round_id))["context"])
        assert repeated.status_code == 201


async def damaged(
    folder: Path, party: Party, do: Callable[[Server, str], object], after: Callable[[str], object] = id
) -> str:
    """Damage a round that checks boxes, and stop the coordinator."""
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "checking")
        do(server, round_id)
    after(round_id)
    return round_id


@leaves("round", "a lost announcement")
async def _send_again(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    round_id = await damaged(folder, party, lambda server, name: announcements(server, name)[0].remove())
    async with running(folder) as server:
        assert (await party.announce(server, round_id, "m-0")).status_code == 200
        assert (await server.view(round_id))["state"] == "checking"


@leaves("round", "another lost event")
async def _cancel_lost(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    round_id = await damaged(folder, party, lambda *_: None, lambda name: damage_rows(folder, name, "rows"))
    async with running(folder) as server:
        assert (await server.view(round_id))["fault"]["cause"] == "storage-damaged"
        assert await cancel(server, round_id) == "voiding"


@leaves("round", "opening, cohort or cards lost")
async def _close_context(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    """As `veilsum admin close CONTEXT` does."""
    async with running(folder) as server:
        round_id = await party.open_round(server)
    flip_row(folder, "rounds", "opening", "id", round_id)
    async with running(folder) as server:
        assert (await server.client.get(f"/v1/rounds/{round_id}")).status_code == 500
        entries = " ".join(each.on for each in (await server.audited()).entries)
        [context] = re.findall(f"round_id={round_id} context=([0-9a-f]{{64}})", entries)
        signed = Lost.make_signed(party.admin, context=bytes.fromhex(context)).to_bytes()
        assert (await server.client.post(f"{party.where}/lost", content=signed)).status_code == 204
        assert server.coordinator.blobs.list_names("uploads") == ()
        await party.next_period(server)
        await goes_on(server, party)


@leaves("round", "a lost document")
async def _put_back(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play(server, round_id)
        blob: Stored = published(server, round_id)[-1]
        for code in (500, 200):
            flip(blob)
            assert (await server.client.get(f"/v1/rounds/{round_id}/transcript")).status_code == code


@leaves("cohort", "enrolling", "pairing", "formed", "failed")
async def _cohort(folder: Path, party: Party, _patch: pytest.MonkeyPatch, state: str) -> None:
    async with running(folder) as server:
        await party.found(server)
        where = f"/v1/cohorts/{await party.open_cohort(server)}"

        async def current() -> Any:
            return (await server.client.get(where)).json()

        if state == "formed":
            await party.enrol(server)
            assert (await current())["state"] == "formed"
            assert (await party.try_round(server)).status_code == 201
            return
        await party.enrol(server, SIX[: 1 if state == "failed" else 5])
        assert (await current())["state"] == "enrolling"
        closed = await server.client.post(f"{where}/close")
        assert closed.json()["state"] == ("failed" if state == "failed" else "pairing")
        if state == "pairing":
            server.clock.ahead_s += (await current())["deadline_s"] - server.clock()
            server.coordinator.scheduler.wake_up()
            waiting = await server.client.get(
                where, params={"after": (await current())["version"], "wait_s": 5}
            )
            assert waiting.json()["state"] == "failed"
        elif state == "failed":
            assert (await party.try_cohort(server, period="later")).status_code == 201


@leaves("federation", "roster lost", "study lost", "chain lost")
async def _federation(folder: Path, party: Party, _patch: pytest.MonkeyPatch, state: str) -> None:
    table = {"roster lost": "rosters", "study lost": "studies", "chain lost": "links"}[state]
    flip_row(folder, table, "body", "federation", party.federation, cut=table == "links")
    if table == "links":
        assert (await repair_database(Settings(data_dir=folder)))["damaged"] == []
    async with running(folder) as server:
        await party.publish_roster(server, party.roster)
        assert (await party.try_study(server, party.study)).status_code in {200, 201}
        if table == "links":
            await party.done(server)
        else:
            await goes_on(server, party)


@leaves("round", "its id changed")
async def _rename(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    other = "0" * 16
    change = f"UPDATE rounds SET id = '{other}' WHERE id = ?"
    round_id = await damaged(folder, party, lambda *_: None, lambda name: run_sql(folder, change, name))
    async with running(folder) as server:
        assert refusal(await server.client.get(f"/v1/rounds/{other}")) == (500, "storage-damaged")
        assert f"round {other}" in (await server.client.get("/readyz")).json()["damaged"]
    repaired = {"repaired": [f"id of round {round_id}"], "damaged": []}
    assert await repair_database(Settings(data_dir=folder)) == repaired
    async with running(folder) as server:
        assert (await server.view(round_id))["state"] == "checking"


@leaves("process", "the audit log's end, an entry's number, or the public key lost")
async def _repair(folder: Path, party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        await party.found(server)
    run_sql(folder, "UPDATE audit SET number = 3 WHERE number = 1")
    for table in ("audit_head", "coordinator"):
        run_sql(folder, f"DELETE FROM {table}")
    assert len((await repair_database(Settings(data_dir=folder)))["repaired"]) == 2
    async with running(folder) as server:
        await party.open_cohort(server)


@leaves("process", "blobs", "database")
async def _file(folder: Path, _party: Party, _patch: pytest.MonkeyPatch, check: str) -> None:
    path = folder / {"blobs": "blobs", "database": "coordinator.sqlite3"}[check]
    async with running(folder) as server:
        path.rename(folder / "away")
        assert check in await failing(server)
        (folder / "away").rename(path)
        assert await failing(server) == set()


@leaves("process", "migrations")
async def _release(folder: Path, _party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        database = server.coordinator.database
        known = await database.read_value(text("SELECT version_num FROM alembic_version"))
        await carry_out(database, text("UPDATE alembic_version SET version_num = 'later'"))
        assert await failing(server) == {"migrations"}
        await carry_out(database, text(f"UPDATE alembic_version SET version_num = '{known}'"))
        assert await failing(server) == set()


@leaves("process", "process")
async def _process(folder: Path, _party: Party, _patch: pytest.MonkeyPatch) -> None:
    async with running(folder) as server:
        server.coordinator.background[0].cancel()
        await asyncio.wait(server.coordinator.background[:1])
        assert await failing(server) == {"process"}
    async with running(folder) as server:
        assert await failing(server) == set()


@leaves("process", "clock")
async def _clock(folder: Path, party: Party, patch: pytest.MonkeyPatch) -> None:
    """And for a clock that jumps for seconds no round ends."""
    async with running(folder) as server:
        round_id, right = await party.begun(server), server.coordinator.database.clock
        patch.setattr(Sqlite, "clock", property(lambda _: right + 7200.0))
        assert await failing(server) == {"clock"}
        server.coordinator.scheduler.wake_up()
        await party.serve(server, round_id, "m-0")
        patch.undo()
        assert await failing(server) == set()
        assert (await server.view(round_id))["state"] == "collecting"
