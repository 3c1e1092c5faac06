from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

from calibration import FFCStatistics, NonFinite, NotUnitNorm, ShapeMismatch, Solution, solve_ffc


@pytest.fixture
def solution(clouds: Callable[..., Any]) -> Solution:
    rows, labels = clouds(200, 6, 3)
    statistics = FFCStatistics(6, 5, bias=True)
    statistics.update(rows, labels + 1)
    return solve_ffc(statistics)


def test_classes_without_records_are_reported_and_never_predicted(solution: Solution) -> None:
    assert solution.empty_classes == (0, 4)
    assert solution.bias is not None
    assert not solution.weights[:, [0, 4]].any()
    assert not solution.bias[[0, 4]].any()
    # Opposite to every class mean all scores are negative, and 0 would win.
    away = -solution.weights.sum(axis=1, keepdims=True).T
    predicted = solution.predict(away, normalise=True)
    assert predicted.dtype == np.int64
    assert set(predicted.tolist()) <= {1, 2, 3}


def test_scores_take_what_update_takes(solution: Solution, clouds: Callable[..., Any]) -> None:
    rows, _ = clouds(20, 6, 3, seed=1)
    scores = solution.scores(rows)
    assert scores.shape == (20, 5)
    np.testing.assert_allclose(solution.scores(torch.from_numpy(rows).float()), scores, atol=1e-6)
    np.testing.assert_allclose(solution.scores(7 * rows, normalise=True), scores, atol=1e-12)
    assert (solution.predict(rows) == scores[:, 1:4].argmax(axis=1) + 1).all()
    assert solution.predict(np.empty((0, 6))).shape == (0,)
    with pytest.raises(NotUnitNorm, match="normalise=True"):
        solution.scores(2 * rows)
    with pytest.raises(NonFinite):
        solution.predict(np.full((1, 6), np.nan))
    with pytest.raises(ShapeMismatch, match=r"pass \(n, 6\)"):
        solution.scores(rows[:, :-1])


def test_a_solution_is_frozen(solution: Solution) -> None:
    writable: Any = solution
    with pytest.raises(FrozenInstanceError):
        writable.ridge = 2.0
