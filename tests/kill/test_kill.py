"""The quick part of `make kill`: some points of each pair of stores."""

from pathlib import Path

import pytest

from tests.kill.run import kill_at, points_of
from tests.service.servers import Servers


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["embedded", "servers"])
def test_a_killed_coordinator_loses_nothing(
    pair: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    servers: Servers | None = request.getfixturevalue("servers") if pair == "servers" else None
    labels, expected = points_of(pair, servers, tmp_path)
    for label in ("before put uploads", "after put sums"):
        outcome = kill_at(pair, servers, tmp_path, labels.index(label))
        assert (outcome.weights, outcome.sums, outcome.lost) == (expected.weights, expected.sums, ()), label
