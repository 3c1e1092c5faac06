"""A small version of `make audit`: 8 releases of 256 canaries each instead of 48 of 512."""

import numpy as np
import pytest

from assurance.audit.canaries import Canaries
from assurance.audit.pipeline import BUGS, unchanged

SIZES = {"dim": 256, "classes": 2, "count": 256}


def test_the_mechanism_keeps_its_promise() -> None:
    canaries = Canaries(**SIZES, bug=unchanged)
    assert np.abs(canaries.rows @ canaries.rows.T - np.eye(256)).max() < 0.01
    assert canaries.estimate(8, seed=1).fault(canaries.mechanism.mu_round) is None


@pytest.mark.parametrize("name", BUGS)
def test_every_bug_is_flagged(name: str) -> None:
    canaries = Canaries(**SIZES, bug=BUGS[name])
    fault = canaries.estimate(8, seed=1).fault(canaries.mechanism.mu_round)
    assert (fault or "").startswith("too little noise")
