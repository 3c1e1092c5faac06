from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.remembered import remembered
from tests.support.simulator import Federation
from veilsum.protocol import attempt, round_spec, sizing
from veilsum.protocol.coordinator import enrolling
from veilsum.protocol.sizing import Sizes

__all__ = ["remembered", "small_chunks", "sparse"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two chunks of the simulator's vectors of 99 elements."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 64)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Federation]:
    """Put twelve-member federations on a ring: four neighbours each, one of two in a row may drop out, four members decrypt.

    Real rings start at about 700 members. A member that doesn't decrypt is shown only the cards that it needs.
    """
    sized = sizing.size_cohort

    def ring(*args: Any, **kwargs: Any) -> Sizes:
        return replace(sized(*args, **kwargs), degree=4, window_dropped_max=1)

    monkeypatch.setattr(attempt, "size_cohort", ring)
    monkeypatch.setattr(enrolling, "ALL_CARDS_MAX", 5)
    return lambda **changes: Federation(12, **{"decryptors": (0, 3, 6, 9), "seed": 1, **changes})
