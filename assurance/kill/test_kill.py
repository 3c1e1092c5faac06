"""A short run of `make kill`: some kills on each pair of stores."""

from pathlib import Path

import pytest

from assurance.kill import points
from assurance.kill.campaign import Campaign, Enough, Plan, on_pair, replicas_on
from assurance.kill.coordinator import CHUNK_ELEMENTS
from assurance.kill.game import Game
from assurance.kill.games import GAMES
from assurance.kill.harness import Fates
from tests.support.replicas import warm_up
from veilsum.protocol import round_spec


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the coordinators' chunk size."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["embedded", "servers"])
def test_killed_coordinators_lose_nothing(pair: str, request: pytest.FixtureRequest) -> None:
    if pair == "servers":
        request.getfixturevalue("servers")
    found = on_pair(pair, Plan(times=1, random=2, rounds=1, flips=5, limit_s=10.0, plays=GAMES[:1]))
    assert found["faults"] == []
    assert {"flipped in uploads", "rounds done"} <= found["damage"].keys()
    assert found["each_point"]["killed"] >= 3
    assert found["any_time"]["killed_at_any_time"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("play", GAMES[1:])
def test_further_games_come_out_alike(play: type[Game]) -> None:
    found = on_pair("embedded", Plan(times=1, random=2, rounds=1, flips=1, limit_s=20.0, plays=(play,)))
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
    assert points.reachable() - passed - points.LEFT_BEHIND == points.ON_SERVERS
    assert set(points.EXCEPTIONS) & passed == set()
