"""The quick part of `make kill`: some points of each pair of stores."""

from pathlib import Path

import httpx
import pytest

from tests.kill.harness import Members
from tests.kill.run import kill_at, points_of, replicas_on
from tests.service.helping.driver import HelperParty
from tests.service.servers import Servers
from tests.service.serving import Clock, Server


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["embedded", "servers"])
def test_a_killed_coordinator_loses_nothing(
    pair: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    servers: Servers | None = request.getfixturevalue("servers") if pair == "servers" else None
    labels, expected = points_of(pair, servers, tmp_path)
    for label in ("before put uploads", "after put sums"):
        # Which of two replicas adds up is chance: the first may have kept no sum.
        point = labels.index(label) if label in labels else len(labels) // 2
        outcome = kill_at(pair, servers, tmp_path, point)
        assert (outcome.weights, outcome.sums) == (expected.weights, expected.sums), label
        assert (outcome.lost, outcome.left) == ((), ()), label


@pytest.mark.slow
@pytest.mark.parametrize("at", ["announcement of c-07", "HelperVote of h-1", "sums of h-1"])
async def test_a_round_with_helpers_goes_on_at_the_other_replica(
    at: str, tmp_path: Path, servers: Servers
) -> None:
    """One of two processes is killed once this was acknowledged."""
    party = HelperParty(12)
    values = await servers.settings(tmp_path)
    with replicas_on(values, tmp_path, 2) as replicas:
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
        assert not replicas[0].process.is_alive()
        assert replicas[1].process.is_alive()
