from dataclasses import replace
from typing import Any

import pytest

from protocol import attempt, sizing
from protocol.coordinator import enrolling
from protocol.sizing import Sizes
from tests.reference import reference, study


@pytest.fixture
def fake_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cohort on a ring of four neighbours, one of two in a row may be lost. Real rings begin at some 700 members."""
    theirs, ours = sizing.size, study.sizes

    def size(*args: Any, **kwargs: Any) -> Sizes:
        return replace(theirs(*args, **kwargs), degree=4, window_dropped_max=1)

    def sizes(*args: Any, **kwargs: Any) -> Any:
        a_d, n_min, t, _, _, decrypt = ours(*args, **kwargs)
        return a_d, n_min, t, 4, 1, decrypt

    monkeypatch.setattr(attempt, "size", size)
    monkeypatch.setattr(reference, "sizes", sizes)
    monkeypatch.setattr(enrolling, "ALL_CARDS_MAX", 5)
