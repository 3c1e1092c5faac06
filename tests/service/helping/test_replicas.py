"""Clients and helpers talk to either of two coordinators on one database."""

import asyncio
from pathlib import Path

import pytest

from service import coordinator
from service.storage.dialects import Postgres
from tests.service import serving
from tests.service.helping.driver import HelperParty, phase_of
from tests.service.replicas import two
from tests.service.servers import Servers


async def test_a_round_goes_through_both(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SERVERS", servers)
    party = HelperParty(12)
    async with two(tmp_path / "data") as (one, other, both):
        round_id = await party.begin(both, chunk_elements=16)
        assert (await party.play(both, round_id))["state"] == "done"
        await party.check_result(both, round_id)
        assert await one.view(round_id) == await other.view(round_id)
        await party.hear(both, round_id)
        await party.enrol(both)
        desks = [(await each.client.get(party.desk)).json() for each in (one, other)]
        assert desks[0] == desks[1]
        assert (desks[0]["counter"], desks[0]["cards"]) == (1, list(party.helpers))
        following = await party.open_round(other, chunk_elements=16)
        assert (await one.view(following))["sequence"] == 1


async def test_who_did_not_hear_of_an_end_knows_it_by_the_next_round(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(serving, "SERVERS", servers)
    monkeypatch.setattr(Postgres, "listen", nothing)
    monkeypatch.setattr(coordinator, "LOOK_S", 3600.0)
    party = HelperParty(12)
    async with two(tmp_path / "data") as (one, other, _):
        round_id = await party.begin(one, chunk_elements=16)
        assert (await other.view(round_id))["state"] == "collecting"
        assert (await party.play(one, round_id))["state"] == "done"
        await party.hear(one, round_id)
        await party.enrol(one)
        following = await party.open_round(one, chunk_elements=16)
        assert (await other.view(following))["sequence"] == 1
        known = [phase_of(each, following).setting.history for each in (one, other)]
        assert known[0] == known[1]
        assert len(known[1]) == 1
