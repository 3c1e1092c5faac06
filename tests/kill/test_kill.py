"""The quick part of `make kill`: some kills on each pair of stores."""

from pathlib import Path

import httpx
import pytest

from tests.kill import points
from tests.kill.campaign import Campaign, Enough, Plan, on_pair, replicas_on
from tests.kill.game import Game
from tests.kill.games import GAMES
from tests.kill.harness import Fates, Members, warm_up
from tests.service.helping.driver import HelperParty
from tests.service.servers import Servers
from tests.service.serving import Clock, Server


@pytest.mark.parametrize("pair", ["embedded", pytest.param("servers", marks=pytest.mark.slow)])
def test_killed_coordinators_lose_nothing(pair: str, request: pytest.FixtureRequest) -> None:
    if pair == "servers":
        request.getfixturevalue("servers")
    found = on_pair(pair, Plan(times=1, random=2, rounds=1, limit_s=4.0, plays=GAMES[:1]))
    assert found["faults"] == []
    assert found["each_point"]["killed"] >= 3
    assert found["any_time"]["killed_at_any_time"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("play", GAMES[1:])
def test_further_games_come_out_alike(play: type[Game]) -> None:
    found = on_pair("embedded", Plan(times=1, random=2, rounds=1, limit_s=20.0, plays=(play,)))
    assert found["faults"] == []
    assert found["each_point"]["killed"] >= 3


def test_each_writer_of_files_and_each_exception_is_declared() -> None:
    assert points.writers() == set(points.FILES)
    files = {label for labels in points.FILES.values() for label in labels}
    assert set(points.EXCEPTIONS) <= points.commits() | points.appends() | files


@pytest.mark.slow
async def test_the_games_reach_every_point(tmp_path: Path) -> None:
    warm_up()
    campaign = Campaign(replicas_on({}, tmp_path, 1))
    await campaign.run(Fates(), Enough(rounds=len(GAMES)), "points")
    assert campaign.faults == []
    lines = (tmp_path / "points").read_text("ascii").splitlines()
    labels = {line.split(" ", 2)[2] for line in lines}
    passed = {label.removeprefix("before ").removeprefix("after ") for label in labels}
    assert points.reachable() - passed == points.ON_SERVERS
    assert set(points.EXCEPTIONS) & passed == set()


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
