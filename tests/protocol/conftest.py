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
    """Two chunks in the simulator's vectors of 99 elements."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 64)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Federation]:
    """Federations of twelve on a ring: four neighbours each, one of two in a row may be lost, four decrypt.

    Real rings begin at some 700 members. Whoever does not decrypt is shown the cards it needs and no others.
    """
    sized = sizing.size

    def ring(*args: Any, **kwargs: Any) -> Sizes:
        return replace(sized(*args, **kwargs), degree=4, window_dropped_max=1)

    monkeypatch.setattr(attempt, "size", ring)
    monkeypatch.setattr(enrolling, "ALL_CARDS_MAX", 5)
    return lambda **changes: Federation(12, **{"decryptors": (0, 3, 6, 9), **changes})
