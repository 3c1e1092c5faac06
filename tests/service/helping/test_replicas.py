"""Clients and helpers talk to either of two coordinators on one database."""

from pathlib import Path

import pytest

from tests.service import serving
from tests.service.helping.driver import HelperParty
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
