"""Before a round opens, it is known which of its certifying members are online: by admitted requests alone."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from service.coordination import liveness
from service.coordination.liveness import LastHeard, find_decryptors
from service.storage.database import Database
from tests.support.clients import KEYS
from tests.support.party import HOLD, SIX, WITHHOLDING, Party
from tests.support.refusals import refusal
from tests.support.serving import Clock, Server, running
from tests.support.simulator import After
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import Target, sign_request
from veilsum.protocol.rest import DecryptorsView
from veilsum.system.intervals import compute_presence_s

LONG_S = 900.0
"""A silence longer than a preflight looks back."""
pytestmark = pytest.mark.usefixtures("six")


@pytest.fixture
def past() -> None:
    """Count members as heard from now, not when a copied cohort was formed."""


@pytest.fixture
async def silent(server: Server, formed: Party) -> Party:
    """All members have enrolled, and were not heard from since."""
    server.clock.ahead_s += LONG_S
    return formed


async def shown(server: Server, party: Party, **changes: Any) -> DecryptorsView:
    path = f"/v1/cohorts/{party.cohort}/rounds/preflight"
    answer = await server.client.post(path, json=changes)
    assert answer.status_code == 200, answer.text
    return DecryptorsView.model_validate(answer.json()["decryptors"])


async def waits(server: Server, party: Party, member: str) -> None:
    """Poll as a member that waits for a round."""
    async with server.signing(member, KEYS[member]) as client:
        assert (await client.get(f"/v1/cohorts/{party.cohort}")).status_code == 200


def signed(party: Party, who: str, key: SigningKey, created_s: float, **changes: Any) -> dict[str, str]:
    """Return the headers of a signed request for the cohort."""
    target = Target("GET", "coordinator", f"/v1/cohorts/{party.cohort}")
    return sign_request(key, who, target, b"", created_s=created_s, nonce=os.urandom(16), **changes)


async def test_a_preflight_names_who_was_not_heard_from(server: Server, formed: Party) -> None:
    everybody = await shown(server, formed)
    assert (everybody.decryptors, everybody.heard, everybody.silent) == (6, 6, ())
    assert everybody.needed == server.coordinator.catalogue.cohorts[formed.cohort].formed_manifest().threshold
    assert everybody.within_s == 120  # half of the study's windows.answer is less
    server.clock.ahead_s += LONG_S
    assert (await shown(server, formed)).silent == SIX
    assert (await shown(server, formed, heard_within_s=2 * LONG_S)).silent == ()
    await waits(server, formed, "m-4")
    await waits(server, formed, "m-1")
    seen = await shown(server, formed)
    assert (seen.heard, seen.silent) == (2, ("m-0", "m-2", "m-3", "m-5"))
    assert (await formed.try_round(server)).status_code == 201, "a round that does not ask for them opens"


async def test_who_was_heard_from_is_stored_within_seconds_and_known_after_a_restart(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "WRITE_HEARD_EVERY_S", 0.05)
    party, clock = Party(SIX), Clock()
    async with running(tmp_path, clock) as server:
        await party.begin(server)
        clock.ahead_s += LONG_S
        await waits(server, party, "m-4")
        stored = LastHeard(server.coordinator.database)
        async with asyncio.timeout(10):
            while (await stored.read_times(party.federation, ["m-4"]))["m-4"] < clock() - 60:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.05)
    async with running(tmp_path, clock) as server:
        assert (await shown(server, party)).silent == tuple(each for each in SIX if each != "m-4")


async def test_what_proves_no_member_is_answered_as_anybody_and_heard_from_nobody(
    server: Server, silent: Party
) -> None:
    other = Party(("m-0", "m-1", "m-2"), admin_seed=b"b" * 32)
    other.keys["m-0"] = SigningKey(b"o" * 32)
    await other.found(server)
    path, now_s = f"/v1/cohorts/{silent.cohort}", server.clock()
    once = signed(silent, "m-0", KEYS["m-0"], now_s - LONG_S + 30)
    server.clock.ahead_s -= LONG_S
    async with server.anonymous() as client:
        assert (await client.get(path, headers=once)).status_code == 200
        server.clock.ahead_s += LONG_S
        own = signed(silent, "m-0", KEYS["m-0"], now_s)
        bare = await client.get(path)
        nothing = [
            signed(silent, "m-0", KEYS["m-1"], now_s),
            signed(silent, "m-0", other.keys["m-0"], now_s),
            signed(silent, "m-0", KEYS["m-0"], now_s - 200),
            signed(silent, "m-0", KEYS["m-0"], now_s + 200),
            signed(silent, "m-0", KEYS["m-0"], now_s, lifetime_s=301),
            signed(silent, "m-9", KEYS["m-0"], now_s),
            signed(silent, "admin", silent.admin, now_s),
            {**own, "signature": own["signature"].swapcase()},
            {**own, "host": "elsewhere"},
            {"signature-input": "x", "signature": ""},
            once,  # too late, and sent before
        ]
        for headers in nothing:
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()) == (200, bare.json()), headers
        assert (await client.get(f"{path}?after=-1", headers=own)).status_code == 200
        assert (await shown(server, silent)).silent == SIX
        assert refusal(await client.get(f"/v1/cohorts/{'0' * 64}", headers=own)) == (404, "not-found")
        assert (await client.get("/v1/cohorts/none", headers=own)).status_code == 400
        assert (await client.get(path, headers=own)).status_code == 200
        assert "m-0" not in (await shown(server, silent)).silent
        server.clock.ahead_s += 100
        again = await client.get(path, headers=own)
        assert again.status_code == 200, "sent again in time: heard as of its signature"
        server.clock.ahead_s += 505
        assert (await shown(server, silent)).silent == SIX
    listed = (await server.client.get("/v1/audit", params={"limit": 1000})).json()["entries"]
    assert not any("GET" in entry["action"] or entry["who"] == "member m-9" for entry in listed)


async def test_a_round_that_asks_for_them_is_opened_where_enough_are_there(
    server: Server, silent: Party
) -> None:
    needed = server.coordinator.catalogue.cohorts[silent.cohort].formed_manifest().threshold
    for member in SIX[1:needed]:
        await waits(server, silent, member)
    path = f"/v1/cohorts/{silent.cohort}/rounds"
    request = {"heard_within_s": 120}
    refused = await server.client.post(path, json=request)
    assert refusal(refused) == (422, "terms-refused")
    assert re.findall(r"m-\d", refused.json()["detail"]) == ["m-0", *SIX[needed:]]
    assert (await server.client.post(f"{path}/preflight", json=request)).json() == refused.json()
    assert (await server.cohort(silent.cohort))["rounds"] == []
    # Without the requirement, silence is reported but doesn't prevent the round.
    assert (await shown(server, silent)).heard == needed - 1
    await waits(server, silent, "m-0")
    assert (await shown(server, silent, heard_within_s=120)).heard == needed
    opened = await server.client.post(path, json=request)
    assert opened.status_code == 201, opened.text
    view = await silent.play(server, opened.json()["round"])
    assert view["state"] == "done"


def test_sites_that_connect_once_a_day_count_as_present_where_answers_take_two_days() -> None:
    assert [compute_presence_s(answer_s) for answer_s in (120.0, 172_800.0)] == [120.0, 86_400.0]


async def test_waiting_for_a_run_is_being_heard_from_too(server: Server, silent: Party) -> None:
    async with server.signing("m-3", KEYS["m-3"]) as client:
        assert (await client.get(f"{silent.where}/runs")).status_code == 200
    assert (await shown(server, silent)).silent == tuple(each for each in SIX if each != "m-3")


async def test_a_step_needs_as_many_members_as_may_be_missing_later(server: Server) -> None:
    party = Party(SIX, classes=5, hold=HOLD, question={**WITHHOLDING, "members_min": 5})
    await party.begin(server)
    server.clock.ahead_s += LONG_S
    for member in SIX[:4]:  # n_min, and as many decryptors as a round needs
        await waits(server, party, member)
    assert refusal(await party.try_round(server, heard_within_s=120)) == (422, "terms-refused")
    await waits(server, party, "m-4")
    opened = await party.try_round(server, heard_within_s=120)
    assert opened.status_code == 201
    count = opened.json()["round"]
    assert (await party.play(server, count))["state"] == "done"
    await party.recount(server, count)
    server.clock.ahead_s += LONG_S
    for member in SIX[:4]:  # n_min of the six that were counted, of which one may be missing
        await waits(server, party, member)
    assert refusal(await party.try_round(server, heard_within_s=120)) == (422, "terms-refused")
    await waits(server, party, "m-5")
    assert (await party.try_round(server, heard_within_s=120)).status_code == 201


async def test_a_sum_needs_members_that_its_count_counted(server: Server) -> None:
    party = Party(SIX, classes=5, hold=HOLD, question={**WITHHOLDING, "members_min": 5})
    party.drop = {"m-5": After.OPENING}
    assert (await party.play(server, await party.begun(server)))["state"] == "done"
    server.clock.ahead_s += LONG_S
    for member in (*SIX[:3], "m-5"):  # n_min members, three of which may be in the sum
        await waits(server, party, member)
    refused = await party.try_round(server, heard_within_s=120)
    assert refusal(refused) == (422, "terms-refused")
    assert re.findall(r"m-\d", refused.json()["detail"]) == ["m-3", "m-4"]
    await waits(server, party, "m-3")
    assert (await party.try_round(server, heard_within_s=120)).status_code == 201


@pytest.mark.both_stores
async def test_of_all_processes_notes_the_newest_stands(database: Database) -> None:
    one, other = LastHeard(database), LastHeard(database)
    one.note_request("f", "a", 5.0)
    one.note_request("f", "b", 5.0)
    other.note_request("f", "a", 7.0)
    other.note_request("g", "a", 9.0)
    await other.write_notes()
    assert await one.read_times("f", ["a", "b", "c"]) == {"a": 7.0, "b": 5.0}
    for each in (one, other, LastHeard(database)):
        assert await each.read_times("f", ["a", "b", "c"]) == {"a": 7.0, "b": 5.0}
    one.note_request("f", "a", 6.0)  # sent again, or late
    assert await one.read_times("f", ["a"]) == {"a": 7.0}
    one.note_request("f", "a", 8.0)
    assert await other.read_times("f", ["a"]) == {"a": 7.0}
    assert await one.read_times("f", ["a"]) == {"a": 8.0}


async def test_who_was_heard_from_at_the_very_beginning_of_the_time_was_heard_from(
    server: Server, formed: Party
) -> None:
    attempt, last = server.live(await formed.open_round(server)).attempt, server.coordinator.last_heard
    for member, signed_s in (("m-1", 1e10 - 60.0), ("m-2", 1e10 - 60.5), ("m-3", 1e10)):
        last.note_request(formed.federation, member, signed_s)
    found = await find_decryptors(last, attempt, 60.0, 1e10)
    assert (found.heard, found.silent) == (2, ("m-0", "m-2", "m-4", "m-5"))


async def test_all_requests_of_some_seconds_are_written_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, write = list[object](), database.write

    async def counted(work: Any) -> Any:
        writes.append(work)
        await write(work)
        heard.note_request("f", "m-0", 100.0)  # meanwhile

    monkeypatch.setattr(database, "write", counted)
    heard = LastHeard(database)
    for number in range(60):
        heard.note_request("f", f"m-{number % 6}", float(number))
    for _ in range(3):
        await heard.write_notes()
    assert len(writes) == 2
    stored = await LastHeard(database).read_times("f", SIX)
    assert stored == {"m-0": 100.0} | {f"m-{number}": 54.0 + number for number in range(1, 6)}


async def test_what_cannot_be_written_is_written_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Any:
        raise OperationalError("", {}, Exception("disk full"))

    monkeypatch.setattr(liveness, "WRITE_HEARD_EVERY_S", 0.01)
    heard = LastHeard(database)
    heard.note_request("f", "a", 5.0)
    with monkeypatch.context() as broken:
        broken.setattr(database, "write", full)
        writing = asyncio.create_task(heard.keep_writing())
        await asyncio.sleep(0.1)
        assert not writing.done()
    writing.cancel()
    await asyncio.wait([writing])
    assert await LastHeard(database).read_times("f", ["a"]) == {"a": 5.0}
