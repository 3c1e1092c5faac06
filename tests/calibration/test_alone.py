"""What a round of one member would answer is what the library says of the same records."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import FFCStatistics, FoldedStatistics, balanced_weights, fold_curve, solve_ffc, solve_lda
from calibration.errors import CalibrationError
from calibration.questions import Wish
from calibration.questions.alone import Alone, alone, chain

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 90)
FEATURES = RNG.normal(size=(90, 5)) + 2 * np.eye(3, 5)[LABELS]
BATCHES = [(FEATURES[:40], LABELS[:40]), (FEATURES[40:], LABELS[40:])]


def answered(name: str, **parameters: str | float | bool) -> Alone:
    earlier = None
    for leading in chain(name)[:-1]:
        earlier = alone(leading, Wish(5, 3), BATCHES, earlier=earlier, normalise=True).earlier
    return alone(name, Wish(5, 3, parameters), BATCHES, earlier=earlier, normalise=True)


def plain(**settings: object) -> FFCStatistics:
    statistics = FFCStatistics(5, 3, normalise=True, **settings)  # type: ignore[arg-type]
    statistics.update(FEATURES, LABELS)
    return statistics


def weights(found: Alone) -> np.ndarray:
    assert found.answer.head is not None
    return found.answer.head.weights


def test_the_ridge_heads() -> None:
    np.testing.assert_allclose(weights(answered("ffc")), solve_ffc(plain()).weights, atol=1e-12)
    balanced = plain(class_weights=np.array(balanced_weights(plain().counts)))
    np.testing.assert_allclose(weights(answered("balanced")), solve_ffc(balanced).weights, atol=1e-12)
    folded = FoldedStatistics(5, 3, 4, normalise=True)
    folded.update(FEATURES, LABELS)
    found = answered("folds", folds=4)
    assert found.answer.ridge == fold_curve(folded).ridge
    given = alone("ffc", Wish(5, 3), BATCHES, ridges=(0.5,), normalise=True)
    np.testing.assert_allclose(weights(given), solve_ffc(plain(), 0.5).weights, atol=1e-12)


def test_what_is_published_beside_a_head() -> None:
    document = answered("ffc", publish="lda").answer.documents["lda"]
    np.testing.assert_allclose(document.arrays["weights"], solve_lda(plain()).weights, atol=1e-10)


def test_leave_one_out_by_leaving_each_out() -> None:
    found = answered("loo").answer
    assert found.grid is not None
    assert found.errors is not None
    rows = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    wanted, at = np.eye(3)[LABELS], 20
    errors = []
    for left in range(90):
        kept = np.delete(np.arange(90), left)
        V = rows[kept].T @ rows[kept] + found.grid[at] * np.eye(5)
        errors.append(
            ((wanted[left] - rows[left] @ np.linalg.solve(V, rows[kept].T @ wanted[kept])) ** 2).sum()
        )
    assert found.errors[at] == pytest.approx(np.mean(errors), rel=1e-9)


def test_the_rounds_that_lead_to_a_head() -> None:
    assert chain("ffc", bias=True) == ("ffc-bias",)
    assert chain("loo", bias=True) == ("ffc-bias", "loo")
    assert chain("balanced", bias=True) == chain("balanced") == ("counts", "balanced")
    assert chain("ccvr") == ("ffc", "ccvr")
    assert chain("refine", bias=True) == ("ffc-bias", *["refine"] * 4)
    assert chain("refine", rounds=2) == ("ffc", "refine", "refine")
    assert chain("ffc", rounds=2) == ("ffc",)
    with pytest.raises(CalibrationError, match="a rff head takes no bias; ffc, "):
        chain("rff", bias=True)
