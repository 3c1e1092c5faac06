"""The quick part of `make kill`: some kills on each pair of stores."""

from pathlib import Path

import httpx
import pytest

from tests.kill.campaign import Plan, on_pair, replicas_on
from tests.kill.harness import Members
from tests.service.helping.driver import HelperParty
from tests.service.servers import Servers
from tests.service.serving import Clock, Server


@pytest.mark.parametrize("pair", ["embedded", pytest.param("servers", marks=pytest.mark.slow)])
def test_killed_coordinators_lose_nothing(pair: str, request: pytest.FixtureRequest) -> None:
    if pair == "servers":
        request.getfixturevalue("servers")
    found = on_pair(pair, Plan(times=1, random=2, rounds=1, limit_s=4.0))
    assert found["faults"] == []
    assert found["each_point"]["killed"] >= 3
    assert found["any_time"]["killed_at_any_time"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("at", ["announcement of c-07", "HelperVote of h-1", "sums of h-1"])
async def test_a_round_with_helpers_goes_on_at_the_other_replica(
    at: str, tmp_path: Path, servers: Servers
) -> None:
    """One of two processes is killed once this was acknowledged."""
    party = HelperParty(12)
    replicas = replicas_on(await servers.settings(tmp_path), tmp_path, 2)
    try:
        for replica in replicas:
            await replica.start()

        async def on_ack(label: str) -> None:
            if label == at:
                replicas[0].kill()

        party.on_ack = on_ack
        async with httpx.AsyncClient(
            transport=Members(replicas), base_url="http://coordinator", timeout=60.0
        ) as client:
            server = Server(Path(), None, client, Clock())
            round_id = await party.begin(server, chunk_elements=16)
            await party.play(server, round_id, "recovered")
            assert (await server.until(round_id, within_s=60.0))["state"] == "done"
            await party.check_result(server, round_id)
        assert not replicas[0].is_alive
        assert replicas[1].is_alive
    finally:
        for replica in replicas:
            replica.kill()
