"""The admin closes attempts that the coordinator does not know."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete, update

from service.coordination.checking import find_damage
from service.coordination.journal import begin_round
from service.settings import Settings
from service.storage.tables import lost_contexts, rounds
from tests.service.conftest import Past
from tests.service.storage.kept import flip, run_sql
from tests.support.clients import client_of
from tests.support.forging import again
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal, refused
from tests.support.serving import TOKEN, Server, carry_out, running
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Lost

UNKNOWN = bytes([7] * 32)


async def close(
    server: Server,
    party: Party,
    context: bytes = UNKNOWN,
    key: SigningKey | None = None,
    federation: str = "",
) -> httpx.Response:
    """Post a Lost, with the admin's signature on the request."""
    signed = Lost.make_signed(key or party.admin, context=context).to_bytes()
    path = f"/v1/federations/{federation or party.federation}/lost"
    async with server.signing("admin", party.admin) as admin:
        return await admin.post(path, content=signed)


async def closing(server: Server, federation: str = "", context: bytes = UNKNOWN) -> httpx.Response:
    query = f"?federation={federation}" if federation else ""
    return await server.client.get(f"/v1/contexts/{context.hex()}/closing{query}")


async def test_an_unknown_context_is_closed_for_good_in_one_federation(server: Server, formed: Party) -> None:
    assert refusal(await closing(server, formed.federation)) == (404, "not-found")
    for _ in range(2):
        assert (await close(server, formed)).status_code == 204
    found = await closing(server, formed.federation)
    assert found.content == Lost.make_signed(formed.admin, context=UNKNOWN).to_bytes()
    assert refusal(await closing(server)) == (404, "not-found")
    other = Party(FOUR, admin_seed=b"b" * 32)
    await other.found(server)
    assert refusal(await closing(server, other.federation)) == (404, "not-found")
    assert (await close(server, other)).status_code == 204
    assert (await closing(server, formed.federation)).content == found.content
    assert (await closing(server, other.federation)).content != found.content
    deeds = [entry for entry in (await server.audited()).entries if entry.action.endswith("/lost")]
    assert [(entry.who, entry.on, entry.outcome) for entry in deeds[:2]] == [
        ("admin", f"federation={formed.federation} context={UNKNOWN.hex()}", "done")
    ] * 2


async def test_a_damaged_lost_is_refused_until_the_admin_closes_again(server: Server, formed: Party) -> None:
    assert (await close(server, formed)).status_code == 204
    before = (await closing(server, formed.federation)).content
    damaged = update(lost_contexts).values(body=before[:-1] + bytes([before[-1] ^ 1]))
    await carry_out(server.coordinator.database, damaged)
    assert refusal(await closing(server, formed.federation)) == (500, "storage-damaged")
    assert (await close(server, formed)).status_code == 204
    assert (await closing(server, formed.federation)).content == before


async def test_only_the_admin_of_the_federation_closes_and_only_what_is_unknown(
    server: Server, formed: Party
) -> None:
    assert refusal(await close(server, formed, key=formed.keys["m-0"])) == (422, "bad-signature")
    stranger = SigningKey(bytes([9] * 32)).public.hex()
    assert refusal(await close(server, formed, federation=stranger)) == (401, "unauthorised")
    signed = Lost.make_signed(formed.admin, context=UNKNOWN).to_bytes()
    async with client_of(server.app, {"authorization": f"Bearer {TOKEN}"}) as operator:
        answer = await operator.post(f"/v1/federations/{stranger}/lost", content=signed)
        assert refusal(answer) == (404, "not-found")
    assert refusal(await closing(server, formed.federation)) == (404, "not-found")
    round_id = await formed.open_round(server)
    context = bytes.fromhex((await server.view(round_id))["context"])
    answer = await close(server, formed, context)
    assert refusal(answer) == (409, "conflict")
    assert f"round {round_id}" in answer.json()["detail"]


@pytest.mark.both_stores
async def test_a_closed_context_is_never_opened(server: Server, formed: Party) -> None:
    database, round_id = server.coordinator.database, await formed.open_round(server)
    attempt = (await server.coordinator.catalogue.find_round(round_id)).attempt
    terms = replace(attempt.terms, latest_end_s=attempt.terms.latest_end_s + 1)
    later = replace(attempt, opening=again(attempt.opening, server.coordinator.key, terms=terms))
    await carry_out(database, delete(rounds))
    assert (await close(server, formed, later.context)).status_code == 204
    with refused("conflict", ...):
        await begin_round(database, later, 0.0, 0)
    assert await begin_round(database, attempt, 0.0, 0)


async def test_a_run_that_follows_a_closed_round_that_nobody_can_read_is_shown(
    stopped: Callable[[str], Past],
) -> None:
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        context = server.live(round_id).attempt.context
    run_sql(past.folder, "UPDATE rounds SET opening = x'00'")
    async with running(past.folder) as server:
        runs = f"{party.where}/runs"
        before = (await server.client.get(runs)).json()
        assert (await server.client.get(party.where)).json()["rounds"] == [round_id]
        assert (await close(server, party, context)).status_code == 204
        cohort = await party.open_cohort(server, period="next")
        after = (await server.client.get(runs)).json()
        assert after["revision"] > before["revision"]
        assert [run["cohort"] for run in after["runs"]][-1] == cohort


async def test_a_damaged_one_is_named(tmp_path: Path) -> None:
    party = Party(FOUR)
    async with running(tmp_path) as server:
        await party.found(server)
        assert (await close(server, party)).status_code == 204
    settings = Settings(data_dir=tmp_path)
    assert await find_damage(settings) == {"damaged": []}
    flip(tmp_path, "lost_contexts", "body", "federation", party.federation)
    named = f"Lost of context {UNKNOWN.hex()} in federation {party.federation}"
    assert await find_damage(settings) == {"damaged": [named]}
