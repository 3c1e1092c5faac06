"""`veilsum bench service` against a running coordinator."""

import math

import pytest

from protocol.errors import Misuse
from tests.veilsum.cli import Cli
from veilsum.loading import CLASSES, RING_BITS, Load, _spread


@pytest.mark.slow
def test_a_coordinator_is_measured(remote: Cli) -> None:
    small = ("--members", 5, "--upload-mb", 0.01, "--processes", 2, "--calls-per-s", 10)
    facts = remote.operate("bench", "service", *small)
    assert (facts["state"], facts["members"], facts["counted"]) == ("done", 5, 5)
    assert facts["bytes"] == 5 * facts["bytes_each"] >= 50_000
    for calls in (facts["calls_alone"], facts["calls_beside_uploads"]):
        assert calls["calls"] > 0
        assert calls["failed"] == 0
        assert calls["p50_ms"] <= calls["p99_ms"]


def test_a_load_that_the_coordinator_refuses(remote: Cli) -> None:
    outcome = remote(*remote.at("bench", "service", "--members", 4), "--token", "another")
    assert "unauthorised" in outcome.error


@pytest.mark.parametrize("upload_bytes", [1, 1000, 123_456, 40_000_000])
def test_an_upload_has_the_size_that_was_asked_for(upload_bytes: int) -> None:
    def size(dim: int) -> float:
        return (dim * (dim + 1) / 2 + dim * CLASSES + CLASSES) * RING_BITS / 8

    dim = Load("http://x", None, True, None, 4, upload_bytes, 1, 1).dim
    assert size(dim) >= upload_bytes
    assert dim == 1 or size(dim - 1) < upload_bytes


def test_what_is_no_load() -> None:
    with pytest.raises(Misuse, match="4 members"):
        Load("http://x", None, True, None, 3, 1, 1, 1)


def test_a_call_that_failed_counts_as_endless() -> None:
    assert _spread([]) == {"calls": 0}
    assert _spread([1.0, 2.0, math.inf]) == {
        "calls": 3,
        "failed": 1,
        "p50_ms": 2.0,
        "p99_ms": pytest.approx(9.8e8),
    }
