from dataclasses import replace
from typing import Any

import pytest

from assurance.reference import reference, study
from tests.support.remembered import remembered
from veilsum.protocol import attempt, round_spec, sizing
from veilsum.protocol.coordinator import enrolling
from veilsum.protocol.sizing import Sizes

__all__ = ["fake_ring", "remembered"]


@pytest.fixture(autouse=True)
def _chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what `Lockstep` sets."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", round_spec.CHUNK_ELEMENTS)


@pytest.fixture
def fake_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put every cohort on a ring of four neighbours, where one of two in a row may drop out. Real rings start at about 700 members."""
    theirs, ours = sizing.size_cohort, study.sizes

    def size(*args: Any, **kwargs: Any) -> Sizes:
        return replace(theirs(*args, **kwargs), degree=4, window_dropped_max=1)

    def sizes(*args: Any, **kwargs: Any) -> Any:
        a_d, n_min, t, _, _, decrypt = ours(*args, **kwargs)
        return a_d, n_min, t, 4, 1, decrypt

    monkeypatch.setattr(attempt, "size_cohort", size)
    monkeypatch.setattr(reference, "sizes", sizes)
    monkeypatch.setattr(enrolling, "ALL_CARDS_MAX", 5)
