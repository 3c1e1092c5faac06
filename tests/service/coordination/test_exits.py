"""What is lost from the database and no new period replaces: the audit log, ids and signatures.

`assurance/kill/test_losses.py` has the other kinds of rows, and the commands that lead on.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from service.coordination.checking import find_damage
from service.coordination.repairing import repair_database
from service.settings import Settings
from tests.service.conftest import Past
from tests.service.storage.kept import run_sql
from tests.support.refusals import refusal
from tests.support.serving import running
from veilsum.cli.commands.audit import check_log
from veilsum.protocol.messages import Manifest, Opening

NOTHING: dict[str, list[str]] = {"repaired": [], "damaged": []}


async def repair(folder: Path, *named: str) -> None:
    """Repair exactly these things, once and for all."""
    settings = Settings(data_dir=folder)
    assert await repair_database(settings) == {"repaired": [*named], "damaged": []}
    assert await repair_database(settings) == NOTHING


async def test_a_flipped_bit_in_the_end_of_the_audit_log_is_mended(stopped: Callable[[str], Past]) -> None:
    past = stopped("formed")
    async with running(past.folder) as server:
        key = server.coordinator.key.public
    digit = "CASE substr(head, 1, 1) WHEN 'f' THEN 'e' ELSE 'f' END"
    run_sql(past.folder, f"UPDATE audit_head SET head = {digit} || substr(head, 2)")
    await repair(past.folder, "audit log")
    async with running(past.folder) as server:
        await past.party.open_round(server)
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
    run_sql(folder, "UPDATE audit SET number = ? WHERE number = ?", last + 2, number)
    async with running(folder) as server:
        assert (await party.try_cohort(server, period="later")).status_code == 201
        assert refusal(await party.try_cohort(server, period="still-later")) == (500, "storage-damaged")
        ready = await server.anonymous().get("/readyz")
        assert (ready.status_code, "audit log" in ready.json()["detail"]) == (503, True)
    await repair(folder, "audit log")
    async with running(folder) as server:
        assert (await party.try_cohort(server, period="still-later")).status_code == 201
        page = await server.audited()
        assert check_log(page, key, (before.head.end,)) == page.head.end
        assert page.entries[:last] == before.entries


async def test_a_changed_entry_of_the_audit_log_is_not_written_anew(stopped: Callable[[str], Past]) -> None:
    folder = stopped("formed").folder
    run_sql(folder, "UPDATE audit SET number = number + 1000, who = who || 'x' WHERE number = 3")
    entries = run_sql(folder, "SELECT * FROM audit")
    found = await repair_database(Settings(data_dir=folder))
    assert (found["repaired"], len(found["damaged"])) == ([], 1)
    assert run_sql(folder, "SELECT * FROM audit") == entries


@pytest.mark.parametrize("column", ["opening", "manifest"])
async def test_a_round_whose_terms_are_damaged_keeps_its_id(
    stopped: Callable[[str], Past], column: str
) -> None:
    """What was opened then has another context, which nobody signed for."""
    past = stopped("formed")
    folder = past.folder
    async with running(folder) as server:
        round_id = await past.party.open_round(server)
        attempt = server.live(round_id).attempt
    damaged: Opening | Manifest = replace(attempt.opening, sequence=attempt.opening.sequence + 1)
    if column == "manifest":
        damaged = replace(attempt.manifest, cards_root=bytes(32))
    table = "rounds" if column == "opening" else "cohorts"
    run_sql(folder, f"UPDATE {table} SET {column} = ?", damaged.to_bytes())
    found = await repair_database(Settings(data_dir=folder))
    assert found["repaired"] == []
    assert [each for each in found["damaged"] if each.startswith(f"round {round_id}: ")]
    assert run_sql(folder, "SELECT id FROM rounds") == [(round_id,)]


@pytest.mark.parametrize("place", ["rosters.body", "studies.body", "rounds.opening"])
async def test_a_document_whose_signature_has_changed_is_refused(
    stopped: Callable[[str], Past], place: str
) -> None:
    """A roster and a study until they are published again."""
    past = stopped("finished")
    folder, party, (table, column) = past.folder, past.party, place.split(".")
    [(body,)] = run_sql(folder, f"SELECT {column} FROM {table}")
    run_sql(folder, f"UPDATE {table} SET {column} = ?", body[:-1] + bytes([body[-1] ^ 1]))
    assert len((await find_damage(Settings(data_dir=folder)))["damaged"]) > 0
    where = {
        "rosters": f"{party.where}/roster",
        "studies": f"{party.where}/studies/{party.study.hash.hex()}",
        "rounds": f"/v1/rounds/{past.round_id}/opening",
    }[table]
    async with running(folder) as server:
        assert refusal(await server.client.get(where)) == (500, "storage-damaged")
        if table != "rounds":
            await party.publish_roster(server, party.roster)
            await party.try_study(server, party.study)
            assert (await server.client.get(where)).content == body
        await party.open_round(server)
