"""Two coordinators on one database: members may talk to either, and what both do at once is done once."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from protocol.simulator import After
from service.storage.tables import leases, rounds
from tests.service import serving
from tests.service.driver import Party
from tests.service.replicas import two
from tests.service.servers import Servers
from tests.service.serving import OCTETS


@pytest.fixture(autouse=True)
def _on_servers(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SERVERS", servers)


async def test_members_may_talk_to_either(tmp_path: Path, party: Party) -> None:
    party.drop = dict.fromkeys(("m-4", "m-5"), After.OPENING)
    async with two(tmp_path / "data") as (one, other, both):
        await party.begin(both)
        for _ in range(2):
            round_id = await party.open_round(both)
            assert (await party.play(both, round_id))["state"] == "done"
            await party.check_result(both, round_id)
            assert await one.view(round_id) == await other.view(round_id)
        assert party.heard() == set(party.ids[:4])
        for replica in (one, other):
            await replica.tidy(round_id)
            assert replica.coordinator.blobs.names("uploads") == ()
            assert replica.coordinator.rounds[round_id].phase is None
        ledger = await other.coordinator.federations.ledger(party.federation)
        assert len(ledger.links) == 2
        async with one.coordinator.database.reading() as connection:
            assert (await connection.execute(select(leases))).all() == []


async def test_what_both_open_at_once_is_opened_once(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.found(both)
        opened = await asyncio.gather(
            *(
                each.client.post(f"/v1/federations/{party.federation}/cohorts", json={"records_cap": 1000})
                for each in (one, other, one, other)
            )
        )
        assert len({answer.json()["cohort"] for answer in opened}) == 4
        party.cohort = opened[0].json()["cohort"]
        await party.enrol(both)
        answers = await asyncio.gather(*(party.try_round(each) for each in (one, other, one, other)))
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
        assert {answer.json()["cause"] for answer in answers if answer.status_code == 409} == {"conflict"}
        async with one.coordinator.database.reading() as connection:
            assert len((await connection.execute(select(rounds))).all()) == 1


async def test_lanes_of_all_members_at_both(tmp_path: Path, party: Party) -> None:
    """Each chunk is sent to both replicas at the same time."""
    async with two(tmp_path / "data") as (one, other, both):
        await party.begin(both)
        round_id = await party.open_round(both)
        opening = await both.opening(round_id, "m-0")

        async def upload(member: str) -> None:
            party.seal(member, opening)
            where = f"/v1/rounds/{round_id}/uploads/{member}"
            await both.client.put(where, content=party.upload_of(member), headers=OCTETS)
            answers = await asyncio.gather(
                *(
                    each.client.put(f"{where}/chunks/{index}", content=data, headers=OCTETS)
                    for index, data in enumerate(party.chunks[member])
                    for each in (one, other)
                )
            )
            assert {answer.status_code for answer in answers} == {200}

        await asyncio.gather(*map(upload, party.ids))
        assert set((await other.view(round_id))["uploaded"]) == set(party.ids)
        assert (await party.play(both, round_id))["state"] == "done"
        await party.check_result(both, round_id)


async def test_a_waiting_member_hears_of_what_happens_at_the_other(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.begin(both)
        round_id = await party.open_round(one)
        view = await other.view(round_id)
        await asyncio.sleep(0.5)

        async def wait(path: str, after: int) -> dict[str, Any]:
            answer = await other.client.get(path, params={"after": after, "wait_s": 20})
            found: dict[str, Any] = answer.json()
            return found

        waiting = asyncio.create_task(wait(f"/v1/rounds/{round_id}", view["version"]))
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        party.seal("m-0", await one.opening(round_id, "m-0"))
        await one.client.put(
            f"/v1/rounds/{round_id}/uploads/m-0", content=party.upload_of("m-0"), headers=OCTETS
        )
        assert (await waiting)["version"] == view["version"] + 1
        assert time.monotonic() - begun < 4.0  # before anybody looked around


async def test_a_deadline_passes_once(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        await party.begin(both)
        party.drop = {"m-5": After.OPENING}
        round_id = await party.open_round(both)
        await party.play_until(both, round_id, "collecting")
        for member in party.ids[:5]:
            await party.serve(both, round_id, member)
        view = await other.view(round_id)
        both.clock.ahead_s += view["deadline_s"] - both.clock()
        for each in (one, other):
            each.coordinator.keeper.wake()
        after = await both.until(round_id, "checking")
        assert after["version"] == view["version"] + 1
        assert (await party.play(both, round_id))["state"] == "done"
