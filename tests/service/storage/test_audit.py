"""The log's content after a round. Nothing is answered without an entry, and changes to the table are detected."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import OperationalError

from service.coordination.checking import find_damage
from service.coordination.repairing import repair_database
from service.settings import Settings
from service.storage import audit as audit_module
from service.storage.audit import Audit, Deed
from service.storage.tables import audit, audit_head
from tests.support.party import Party
from tests.support.refusals import refusal, refused
from tests.support.serving import TOKEN, Clock, Server, Ticking, carry_out, running
from veilsum.cli.commands.audit import check_log
from veilsum.protocol.audit import AuditHead, End, follow_entries
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.study import DAY_S


async def test_a_round_leaves_who_did_what(server: Server, formed: Party, finished: str) -> None:
    page = await server.audited()
    key = server.coordinator.key.public
    assert check_log(page, key) == page.head.end
    deeds = [(entry.who, entry.action, entry.outcome) for entry in page.entries]
    assert deeds[0] == ("operator configured", "PUT /v1/federations/{federation}/roster", "done")
    assert deeds.count(("member m-3", "PUT /v1/cohorts/{cohort}/cards/{member}", "done")) == 1
    assert ("member m-3", "POST /v1/rounds/{round_id}/answers", "done") in deeds
    assert ("coordinator", "round ended", "done") in deeds
    assert ("coordinator", "uploads deleted", "done") in deeds
    opened = next(each for each in page.entries if each.action == "POST /v1/cohorts/{cohort}/rounds")
    context = (await server.view(finished))["context"]
    assert opened.on == f"cohort={formed.cohort} round_id={finished} context={context}"
    card = next(each for each in page.entries if each.who == "member m-3")
    assert card.on == f"federation={formed.federation} cohort={formed.cohort} member=m-3"
    assert TOKEN not in page.model_dump_json()
    assert len(page.model_dump_json()) < 700 * len(page.entries), "ids, and nothing else"
    assert (await server.audited(after=3, limit=2)).entries == page.entries[3:5]
    assert (await server.audited(after=3_000_000_000)).entries == ()


async def test_refusals_of_whoever_is_known_stand_there_too(server: Server, formed: Party) -> None:
    before = (await server.audited()).head.number
    assert (await server.cancel("0" * 16)).status_code == 404
    assert (await server.client.post(f"/v1/cohorts/{formed.cohort}/rounds", json={"x": 1})).status_code == 400
    card = f"/v1/cohorts/{formed.cohort}/cards/m-0"
    assert (await server.client.put(card, content=b"x")).status_code == 400
    assert (await server.anonymous().put(card, content=b"x")).status_code == 401
    entries = (await server.audited(after=before)).entries
    assert [(each.who, each.outcome) for each in entries] == [
        ("operator configured", "not-found"),
        ("operator configured", "malformed-request"),
        ("member m-0", "truncated"),
    ]


async def test_without_an_entry_there_is_no_answer(
    server: Server, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    await party.found(server)
    real = Audit._append_batch

    async def broken(*_: object) -> Any:
        raise OperationalError("", {}, Exception("disk full"))

    monkeypatch.setattr(Audit, "_append_batch", broken)
    server.app.state.audit = Audit(server.coordinator.database, server.coordinator.key)
    answer = await party.try_cohort(server)
    assert refusal(answer) == (503, "unavailable")
    assert "cohort" not in answer.json()["detail"]
    assert (await server.cancel("0" * 16)).status_code == 503
    assert (await server.client.get("/v1/tokens")).status_code == 200, "what changes nothing is answered"
    monkeypatch.setattr(Audit, "_append_batch", real)
    server.app.state.audit = Audit(server.coordinator.database, server.coordinator.key)
    assert (await party.try_cohort(server)).status_code == 201


async def test_many_at_once_make_one_chain(server: Server) -> None:
    logs = [Audit(server.coordinator.database, server.coordinator.key) for _ in range(3)]
    deeds = [Deed(1.0, f"member m-{index}", "test") for index in range(60)]
    await asyncio.gather(*(logs[index % 3].record_deed(deed) for index, deed in enumerate(deeds)))
    page = await server.audited()
    assert follow_entries(page.entries) == page.head.end
    assert {entry.who for entry in page.entries} == {deed.who for deed in deeds}


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(update(audit).where(audit.c.number == 3).values(who="member m-5"), id="changed"),
        pytest.param(delete(audit).where(audit.c.number > 5), id="cut off"),
    ],
)
async def test_whoever_writes_to_the_table_is_found(server: Server, formed: Party, tamper: Any) -> None:
    key, whole = server.coordinator.key.public, await server.audited()
    assert whole.head.number > 6
    await carry_out(server.coordinator.database, tamper)
    with refused("audit-broken", "coordinator"):
        check_log(await server.audited(), key)


async def test_a_head_that_was_noted_finds_a_database_put_back(server: Server, formed: Party) -> None:
    noted = (await server.audited()).head.end
    database = server.coordinator.database
    head = await database.read_value(text("SELECT head FROM audit WHERE number = 5"))
    await carry_out(
        database,
        delete(audit).where(audit.c.number > 5),
        text(f"UPDATE audit_head SET number = 5, head = '{head}'"),
    )
    page, key = await server.audited(), server.coordinator.key.public
    check_log(page, key)
    with refused("audit-broken", "coordinator"):
        check_log(page, key, (noted,))
    for number in range(12):
        await server.cancel(f"{number:016x}")
    with refused("audit-broken", "coordinator"):
        check_log(await server.audited(), key, (noted,))
    with refused("bad-signature", "coordinator"):
        check_log(page, SigningKey(bytes(32)).public)


async def written(server: Server, log: Audit) -> list[tuple[str, str, str]]:
    return [(each.action, each.on, each.outcome) for each in (await log.read_page(0, 1000)).entries]


async def test_equal_refusals_are_one_entry_and_a_number(server: Server) -> None:
    clock = Ticking(0.0)
    log = Audit(server.coordinator.database, server.coordinator.key, clock)
    before = await written(server, log)
    same, other = (Deed(1.0, "member m-0", "PUT x", on, "conflict") for on in ("index=1", "index=2"))
    for number in range(500):
        await log.record_refusal(same, evidence=f"signature={number}")
    await log.record_refusal(other)
    first = [("PUT x", "index=1 signature=0", "conflict"), ("PUT x", "index=2", "conflict")]
    assert await written(server, log) == [*before, *first]
    clock.now_s = audit_module.REFUSAL_WINDOW_S
    await log.write_repeats()
    await log.write_repeats()
    repeated = ("PUT x", "index=1 repeated=499", "conflict")
    assert await written(server, log) == [*before, *first, repeated]
    await log.record_refusal(same)
    await log.record_refusal(same)
    await log.write_repeats(all_of_them=True)
    assert (await written(server, log))[-2:] == [
        ("PUT x", "index=1", "conflict"),
        ("PUT x", "index=1 repeated=1", "conflict"),
    ]


async def test_a_caller_s_refusals_have_a_daily_quota(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "REFUSALS_PER_DAY", 5)
    log = Audit(server.coordinator.database, server.coordinator.key, Ticking(0.0))
    before = len(await written(server, log))

    async def refuse(who: str, many: int, at_s: float = 1.0) -> None:
        for number in range(many):
            deed = Deed(at_s, who, "PUT x", f"index={number}", "conflict")
            await log.record_refusal(deed, evidence="evidence")

    await refuse("member m-0", 100)
    await refuse("member m-1", 3)
    found = (await written(server, log))[before:]
    assert [on for _, on, _ in found[:5]] == [f"index={number} evidence" for number in range(5)]
    assert found[5][1:] == ("", "conflict")
    assert [on for _, on, _ in found[6:]] == [f"index={number} evidence" for number in range(3)]
    await log.write_repeats(all_of_them=True)
    assert (await written(server, log))[-1][1:] == ("repeated=94", "conflict")
    await refuse("member m-0", 2, at_s=86_401.0)
    assert [on for _, on, _ in (await written(server, log))[-2:]] == ["index=0 evidence", "index=1 evidence"]


async def test_the_quota_of_a_federation_s_admin_is_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "REFUSALS_PER_DAY", 1)
    log = Audit(server.coordinator.database, server.coordinator.key, Ticking(0.0))
    before = len(await written(server, log))
    for federation in ("ab", "ab", "cd"):
        for index in range(2):
            on = f"federation={federation} index={index}"
            await log.record_refusal(Deed(1.0, "admin", "POST x", on, "conflict"), federation)
    assert [on for _, on, _ in (await written(server, log))[before:]] == [
        "federation=ab index=0",
        "federation=ab",
        "federation=cd index=0",
        "federation=cd",
    ]


async def test_what_a_process_has_counted_is_written_at_its_end(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        for _ in range(9):
            await server.cancel("0" * 16)
        assert len((await server.audited()).entries) == 1
    async with running(tmp_path) as server:
        _, repeated = (await server.audited()).entries
        assert (repeated.on, repeated.outcome) == (f"round_id={'0' * 16} repeated=8", "not-found")
        assert "veilsum_audit_entries 2.0" in (await server.client.get("/metrics")).text


async def test_a_log_is_pruned_to_a_signed_position(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "PRUNED_AT_ONCE", 3)
    clock = Clock()
    async with running(tmp_path, clock, audit_days=30) as server:
        await party.begin(server)
        old, key = await server.audited(), server.coordinator.key
        clock.ahead_s += 31 * DAY_S
        assert (await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["audit"]})).is_success
        await server.coordinator.jobs.sweep_storage()
        page = await server.audited()
        assert page.start is not None
        assert page.start.end == old.head.end
        assert [each.action for each in page.entries] == ["POST /v1/tokens", "audit log pruned"]
        assert check_log(page, key.public, (old.head.end,)) == page.head.end
        with pytest.raises(Misuse):
            check_log(page, key.public, (End(3, old.entries[2].head),))
        forged = page.model_copy(update={"start": AuditHead.sign_end(SigningKey(bytes(32)), page.start.end)})
        with refused("bad-signature", "coordinator"):
            check_log(forged, key.public)
        with refused("audit-broken", "coordinator"):
            check_log(page.model_copy(update={"start": None}), key.public)
        await server.coordinator.jobs.sweep_storage()
        assert (await server.audited()).entries == page.entries
        lost_end = delete(audit_head).where(audit_head.c.id == audit_module.END_ID)
        await carry_out(server.coordinator.database, lost_end)
        for period in ("a", "b"):  # entries that were pruned leave their numbers free
            assert refusal(await party.try_cohort(server, period=period)) == (500, "storage-damaged")
    settings = Settings(data_dir=tmp_path)
    assert await repair_database(settings) == {"repaired": ["audit log"], "damaged": []}
    assert await find_damage(settings) == {"damaged": []}
