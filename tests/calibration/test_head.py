from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FFCStatistics, Head, ShapeMismatch, solve_ffc
from calibration.head import log_softmax, parse_prior


def head_of(*columns: list[float], bias: list[float] | None = None, empty: tuple[int, ...] = ()) -> Head:
    return Head(np.array(columns).T, None if bias is None else np.array(bias), empty)


def test_probabilities_are_a_softmax_over_the_classes_that_have_records() -> None:
    head = head_of([1.0, 0.0], [0.0, 1.0], [0.0, 0.0], empty=(2,))
    probabilities = head.probabilities(np.array([[0.6, 0.8]]), temperature=0.5)
    odds = np.exp(np.array([1.2, 1.6]))
    np.testing.assert_allclose(probabilities, [[*(odds / odds.sum()), 0.0]])
    assert (log_softmax(np.array([1e4, 0.0])) == [0.0, -1e4]).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(CalibrationError, match="temperature is above 0"):
        head_of([1.0]).probabilities(np.ones((1, 1)), temperature=temperature)


def test_unit_columns_divide_the_bias_alike() -> None:
    plain = head_of([3.0, 4.0], [0.0, 0.0], [0.0, 2.0]).with_unit_columns()
    np.testing.assert_allclose(plain.weights.T, [[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]])
    assert plain.bias is None
    assert set(plain.tensors) == {"weights"}
    biased = head_of([3.0, 0.0], bias=[4.0]).with_unit_columns()
    assert biased.bias is not None
    assert set(biased.tensors) == {"weights", "bias"}
    np.testing.assert_allclose([*biased.weights[:, 0], *biased.bias], [0.6, 0.0, 0.8])


def test_a_prior_moves_the_odds_at_any_temperature() -> None:
    counts, prior, rows = np.array([30, 10, 0]), [1, 1, 5], np.ones((1, 1))
    for bias in (None, [0.1, 0.2, 0.0]):
        head = head_of([1.0], [0.5], [0.0], bias=bias, empty=(2,))
        for temperature in (1.0, 0.1):
            p = head.probabilities(rows, temperature=temperature)[0] * [0.5 / 0.75, 0.5 / 0.25, 1]
            moved = head.with_prior(counts, prior, temperature=temperature)
            np.testing.assert_allclose(moved.probabilities(rows, temperature=temperature)[0], p / p.sum())
            assert moved.empty_classes == (2,)
    with pytest.raises(CalibrationError, match="temperature is above 0"):
        head.with_prior(counts, prior, temperature=0.0)


@pytest.mark.parametrize(
    ("prior", "error", "match"),
    [
        ([1.0], ShapeMismatch, "one number for each of 2"),
        ([1.0, -1.0], CalibrationError, "above 0 for every class"),
        ([1.0, 0.0], CalibrationError, "above 0 for every class"),
        ([1.0, np.nan], CalibrationError, "above 0 for every class"),
    ],
)
def test_priors_that_are_none(prior: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        parse_prior(prior, [3, 4])
    assert parse_prior(None, [3, 1]).tolist() == [0.75, 0.25]


def test_a_changed_solution_is_a_plain_head_that_still_predicts(clouds: Any) -> None:
    rows, labels = clouds(300, 8, 4)
    statistics = FFCStatistics(8, 5, bias=True)
    statistics.update(rows, labels)
    changed = solve_ffc(statistics).with_unit_columns()
    assert type(changed) is Head
    assert changed.empty_classes == (4,)
    assert (changed.predict(rows) == labels).mean() > 0.9
