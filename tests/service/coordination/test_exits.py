"""Whatever a bit or a row of the database is lost from, a documented command leads out of it."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from service.coordination.checking import find_damage
from service.coordination.repairing import repair_database
from service.settings import Settings
from tests.service.conftest import Past
from tests.service.storage.kept import flip
from tests.support.party import Party
from tests.support.serving import OCTETS, Server, running
from veilsum.cli.commands.audit import check_log
from veilsum.protocol.messages import Lost, Manifest, Opening

Exit = Callable[[Server, Party, bytes], Awaitable[None]]


def lose(folder: Path, table: str, where: str, value: str) -> None:
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        assert file.execute(f"DELETE FROM {table} WHERE {where} = ?", (value,)).rowcount


def damage(folder: Path, place: str, how: str, party: Party, round_id: str) -> None:
    table, column = place.split(".")
    keys = {"cohorts": ("id", party.cohort), "rounds": ("id", round_id)}
    keys |= dict.fromkeys(("cards", "pairings", "ciphertexts"), ("cohort", party.cohort))
    where, value = keys.get(table, ("federation", party.federation))
    if how == "flipped":
        flip(folder, table, column, where, value, cut=table == "links")
    else:
        lose(folder, table, where, value)


async def publish_roster(server: Server, party: Party, _context: bytes) -> None:
    await party.publish_roster(server, party.roster)


async def publish_study(server: Server, party: Party, _context: bytes) -> None:
    assert (await party.try_study(server, party.study)).status_code in {200, 201}


async def close_unread(server: Server, party: Party, context: bytes) -> None:
    """As `veilsum admin close CONTEXT` does."""
    signed = Lost.make_signed(party.admin, context=context).to_bytes()
    answer = await server.client.post(
        f"/v1/federations/{party.federation}/lost", content=signed, headers=OCTETS
    )
    assert answer.status_code == 204, answer.text
    assert server.coordinator.blobs.list_names("uploads") == ()


@pytest.mark.parametrize("how", ["flipped", "lost"])
@pytest.mark.parametrize(
    ("place", "leave"),
    [
        ("rosters.body", publish_roster),
        ("studies.body", publish_study),
        ("studies.hash", publish_study),
        ("rounds.opening", close_unread),
        ("cohorts.manifest", close_unread),
        ("cards.body", close_unread),
    ],
)
async def test_a_federation_goes_on_after_damage_beside_a_live_round(
    stopped: Callable[[str], Past], place: str, how: str, leave: Exit
) -> None:
    past = stopped("finished")
    folder, party, ended = past.folder, past.party, past.round_id
    async with running(folder) as server:
        await party.next_period(server)
        round_id = await party.open_round(server)
        await party.serve(server, round_id, "m-0")
        context = bytes.fromhex((await server.view(round_id))["context"])
    damage(folder, place, how, party, round_id)
    async with running(folder) as server:
        await leave(server, party, context)
        assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200
        assert (await server.client.get(f"/v1/rounds/{ended}/result")).status_code == 200
        runs = await server.client.get(f"/v1/federations/{party.federation}/runs")
        assert len(runs.json()["runs"]) >= 1
        if leave is close_unread:
            party.phases.clear()  # members wait for the latest end first
            if (place, how) == ("cohorts.manifest", "lost"):  # these members number their cards by cohorts
                assert (await party.try_cohort(server, period="later")).status_code == 201
                return
            await party.next_period(server)
            await party.done(server)
        else:
            assert (await party.play(server, round_id))["state"] == "done"


@pytest.mark.parametrize("how", ["flipped", "lost", "moved"])
async def test_a_damaged_chain_is_made_again(stopped: Callable[[str], Past], how: str) -> None:
    past = stopped("finished")
    folder, party, settings = past.folder, past.party, Settings(data_dir=past.folder)
    async with running(folder) as server:
        before = (await server.client.get(f"{party.where}/chain")).content
    if how == "moved":
        with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
            file.execute("UPDATE links SET position = position + 64")
    else:
        damage(folder, "links.body", how, party, "")
    found = await repair_database(settings)
    assert found == {"repaired": [f"chain of federation {party.federation}"], "damaged": []}
    assert await repair_database(settings) == {"repaired": [], "damaged": []}
    async with running(folder) as server:
        assert (await server.client.get(f"{party.where}/chain")).content == before
        await party.next_period(server)
        await party.done(server)
        assert "chain repaired" in {each.action for each in (await server.audited()).entries}


@pytest.mark.parametrize("column", ["final", "closing", "record", "opening"])
async def test_a_damaged_round_that_has_ended_holds_up_no_new_one(
    stopped: Callable[[str], Past], column: str
) -> None:
    past = stopped("finished")
    party = past.party
    damage(past.folder, f"rounds.{column}", "flipped", party, past.round_id)
    async with running(past.folder) as server:
        assert (await server.client.get(f"/rounds/{past.round_id}")).status_code == 500
        assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200
        await party.next_period(server)
        await party.done(server)


@pytest.mark.parametrize(
    "damage_it",
    [
        "UPDATE audit_head SET head = CASE substr(head, 1, 1) WHEN 'f' THEN 'e' ELSE 'f' END || substr(head, 2)",
        "UPDATE audit_head SET number = number + 1",
        "DELETE FROM audit_head",
        "UPDATE coordinator SET public_key = CASE substr(public_key, 1, 1) WHEN 'f' THEN 'e' ELSE 'f' END || substr(public_key, 2)",
        "DELETE FROM coordinator",
    ],
)
async def test_what_holds_a_whole_process_up_is_made_again(
    stopped: Callable[[str], Past], damage_it: str
) -> None:
    past = stopped("formed")
    folder, party, settings = past.folder, past.party, Settings(data_dir=past.folder)
    async with running(folder) as server:
        key = server.coordinator.key.public
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        if "head = 'f'" in damage_it:
            file.execute(
                "UPDATE audit_head SET head = CASE substr(head, 1, 1) WHEN 'f' THEN 'e' ELSE 'f' END || substr(head, 2)"
            )
        file.execute(damage_it)
    found = await repair_database(settings)
    named = "coordinator's public key" if "coordinator" in damage_it else "audit log"
    assert found == {"repaired": [named], "damaged": []}
    assert await repair_database(settings) == {"repaired": [], "damaged": []}
    async with running(folder) as server:
        await party.done(server)
        page = await server.audited()
        assert check_log(page, key) == page.head.end


@pytest.mark.parametrize("entry", ["an early", "the last"])
async def test_an_entry_of_the_audit_log_gets_its_number_back(
    stopped: Callable[[str], Past], entry: str
) -> None:
    past = stopped("formed")
    folder, party = past.folder, past.party
    async with running(folder) as server:
        key, before = server.coordinator.key.public, await server.audited()
    last = before.head.number
    number = 3 if entry == "an early" else last
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        file.execute("UPDATE audit SET number = ? WHERE number = ?", (last + 2, number))
    async with running(folder) as server:
        assert (await party.try_cohort(server, period="later")).status_code == 201
        refused = await party.try_cohort(server, period="still-later")
        assert (refused.status_code, refused.json()["cause"]) == (500, "storage-damaged")
        ready = await server.anonymous().get("/readyz")
        assert (ready.status_code, "audit log" in ready.json()["detail"]) == (503, True)
    found = await repair_database(Settings(data_dir=folder))
    assert found == {"repaired": ["audit log"], "damaged": []}
    async with running(folder) as server:
        assert (await party.try_cohort(server, period="still-later")).status_code == 201
        page = await server.audited()
        assert check_log(page, key, (before.head.end,)) == page.head.end
        assert page.entries[:last] == before.entries


async def test_a_changed_entry_of_the_audit_log_is_not_written_anew(stopped: Callable[[str], Past]) -> None:
    folder = stopped("formed").folder
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        file.execute("UPDATE audit SET number = number + 1000, who = who || 'x' WHERE number = 3")
        entries = file.execute("SELECT * FROM audit").fetchall()
    found = await repair_database(Settings(data_dir=folder))
    assert (found["repaired"], len(found["damaged"])) == ([], 1)
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file:
        assert file.execute("SELECT * FROM audit").fetchall() == entries


ANOTHER_ID = "UPDATE rounds SET id = CASE substr(id, 1, 1) WHEN 'f' THEN 'e' ELSE 'f' END || substr(id, 2) WHERE id = ?"


async def test_a_live_round_gets_its_id_back_and_goes_on(stopped: Callable[[str], Past]) -> None:
    past = stopped("formed")
    folder, party = past.folder, past.party
    async with running(folder) as server:
        round_id = await party.open_round(server)
        await party.play_until(server, round_id, "checking")
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        file.execute(ANOTHER_ID, (round_id,))
        [(other,)] = file.execute("SELECT id FROM rounds").fetchall()
    async with running(folder) as server:
        refused = await server.client.get(f"/v1/rounds/{other}")
        assert (refused.status_code, refused.json()["cause"]) == (500, "storage-damaged")
        assert f"round {other}" in (await server.anonymous().get("/readyz")).json()["damaged"]
        assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200
    found = await repair_database(Settings(data_dir=folder))
    assert found == {"repaired": [f"id of round {round_id}"], "damaged": []}
    async with running(folder) as server:
        assert (await party.play(server, round_id))["state"] == "done"
        await party.check_result(server, round_id)


@pytest.mark.parametrize("column", ["opening", "manifest"])
async def test_a_round_whose_terms_are_damaged_keeps_its_id(
    stopped: Callable[[str], Past], column: str
) -> None:
    """What was opened then has another context, which nobody signed for."""
    past = stopped("formed")
    folder, party = past.folder, past.party
    async with running(folder) as server:
        round_id = await party.open_round(server)
        attempt = server.live(round_id).attempt
    damaged: Opening | Manifest
    if column == "opening":
        damaged = replace(attempt.opening, sequence=attempt.opening.sequence + 1)
    else:
        damaged = replace(attempt.manifest, cards_root=bytes(32))
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        table = "rounds" if column == "opening" else "cohorts"
        file.execute(f"UPDATE {table} SET {column} = ?", (damaged.to_bytes(),))
    found = await repair_database(Settings(data_dir=folder))
    assert found["repaired"] == []
    assert [each for each in found["damaged"] if each.startswith(f"round {round_id}: ")]
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file:
        assert file.execute("SELECT id FROM rounds").fetchall() == [(round_id,)]


@pytest.mark.parametrize("place", ["rosters", "studies"])
async def test_a_document_whose_signature_has_changed_is_refused_until_it_is_published_again(
    stopped: Callable[[str], Past], place: str
) -> None:
    past = stopped("formed")
    folder, party = past.folder, past.party
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        [(body,)] = file.execute(f"SELECT body FROM {place}").fetchall()
        file.execute(f"UPDATE {place} SET body = ?", (body[:-1] + bytes([body[-1] ^ 1]),))
    assert len((await find_damage(Settings(data_dir=folder)))["damaged"]) > 0
    where = f"{party.where}/roster"
    if place == "studies":
        where = f"{party.where}/studies/{party.study.hash.hex()}"
    async with running(folder) as server:
        refused = await server.client.get(where)
        assert (refused.status_code, refused.json()["cause"]) == (500, "storage-damaged")
        await (publish_roster if place == "rosters" else publish_study)(server, party, b"")
        assert (await server.client.get(where)).content == body
        await party.done(server)


@pytest.mark.parametrize("state", ["formed", "finished"])
async def test_an_opening_whose_signature_has_changed_is_refused(
    stopped: Callable[[str], Past], state: str
) -> None:
    past = stopped(state)
    folder, party, round_id = past.folder, past.party, past.round_id
    if state == "formed":
        async with running(folder) as server:
            round_id = await party.open_round(server)
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        [(opening,)] = file.execute("SELECT opening FROM rounds").fetchall()
        file.execute("UPDATE rounds SET opening = ?", (opening[:-1] + bytes([opening[-1] ^ 1]),))
    found = await find_damage(Settings(data_dir=folder))
    assert found["damaged"] == [f"round {round_id}: its opening has changed"]
    async with running(folder) as server:
        refused = await server.client.get(f"/v1/rounds/{round_id}/opening")
        assert (refused.status_code, refused.json()["cause"]) == (500, "storage-damaged")


async def test_a_round_that_has_lost_its_name_is_left_out(stopped: Callable[[str], Past]) -> None:
    past = stopped("finished")
    party = past.party
    with closing(sqlite3.connect(past.folder / "coordinator.sqlite3")) as file, file:
        file.execute("UPDATE rounds SET id = 'g' || substr(id, 2) WHERE id = ?", (past.round_id,))
    async with running(past.folder) as server:
        shown = await server.client.get(party.where)
        assert (shown.status_code, shown.json()["rounds"]) == (200, [])
        await party.next_period(server)
        await party.done(server)


async def test_an_ended_round_whose_row_is_lost_holds_up_no_new_one(stopped: Callable[[str], Past]) -> None:
    past = stopped("finished")
    party = past.party
    lose(past.folder, "rounds", "id", past.round_id)
    async with running(past.folder) as server:
        assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200
        await party.next_period(server)
        await party.done(server)


@pytest.mark.parametrize("place", ["rosters SET number = number + 8", "studies SET version = version + 8"])
async def test_a_document_that_has_lost_its_number_is_published_again(
    tmp_path: Path, party: Party, place: str
) -> None:
    async with running(tmp_path) as server:
        await party.begin(server)
    with closing(sqlite3.connect(tmp_path / "coordinator.sqlite3")) as file, file:
        assert file.execute(f"UPDATE {place}").rowcount
    async with running(tmp_path) as server:
        await party.publish_roster(server, party.roster)
        assert (await party.try_study(server, party.study)).status_code == 200
        await party.next_period(server)
        await party.done(server)


@pytest.mark.parametrize("place", ["first", "newest"])
@pytest.mark.parametrize("damage_it", ["DELETE FROM cohorts", "UPDATE cohorts SET federation = 'x'"])
async def test_a_cohort_can_be_opened_whichever_is_lost(
    tmp_path: Path, party: Party, place: str, damage_it: str
) -> None:
    async with running(tmp_path) as server:
        await party.begin(server)
        opened = [party.cohort, await party.open_cohort(server, period="later")]
    lost = opened[place == "newest"]
    with closing(sqlite3.connect(tmp_path / "coordinator.sqlite3")) as file, file:
        assert file.execute(f"{damage_it} WHERE id = ?", (lost,)).rowcount == 1
    async with running(tmp_path) as server, asyncio.timeout(20):
        for period in ("later", "still-later"):
            assert (await party.try_cohort(server, period=period)).status_code == 201


@pytest.mark.parametrize("how", ["flipped", "lost"])
@pytest.mark.parametrize(
    "place", ["cohorts.manifest", "cohorts.study", "cards.body", "pairings.signature", "ciphertexts.body"]
)
async def test_a_damaged_cohort_holds_up_no_new_one(
    stopped: Callable[[str], Past], place: str, how: str
) -> None:
    past = stopped("formed")
    party = past.party
    damage(past.folder, place, how, party, "")
    async with running(past.folder) as server:
        assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200
        if (place.partition(".")[0], how) == ("cohorts", "lost"):
            assert (await party.try_cohort(server, period="later")).status_code == 201
            return
        await party.next_period(server)
        await party.done(server)
