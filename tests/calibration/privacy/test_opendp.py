"""Accountant and sampler beside OpenDP's, whose answers `opendp_oracle.py` has written down; nothing here needs OpenDP."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2_contingency  # type: ignore[import-untyped]

from calibration.privacy import zcdp_epsilon
from calibration.privacy.sampler import DiscreteGaussian

ORACLE = json.loads((Path(__file__).parent / "opendp_values.json").read_text("utf-8"))
RARE = 20
"""Values that both together drew less often are one cell of the test."""


@pytest.mark.parametrize(("rho", "delta", "epsilon"), ORACLE["rows"])
def test_zcdp_converts_as_opendp_converts_it(rho: float, delta: float, epsilon: float) -> None:
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("sigma", [1, 3, 10])
def test_draws_are_distributed_as_opendps(
    sigma: int, keystream: Callable[[int], Callable[[int], bytes]]
) -> None:
    theirs = {int(value): count for value, count in ORACLE["histograms"][str(sigma)].items()}
    drawn = np.empty(sum(theirs.values()), np.int64)
    DiscreteGaussian(sigma**2, keystream(sigma)).fill(drawn)
    ours = Counter(drawn.tolist())
    both = {value: (ours[value], theirs.get(value, 0)) for value in ours.keys() | theirs.keys()}
    often = [pair for pair in both.values() if sum(pair) >= RARE]
    rare = np.sum([pair for pair in both.values() if sum(pair) < RARE] or [(0, 0)], axis=0)
    cells = np.array([*often, tuple(rare)] if rare.sum() else often)
    assert chi2_contingency(cells.T).pvalue > 1e-3
