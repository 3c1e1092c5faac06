"""What a round of one member would answer is what the library says of the same records."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import FFCStatistics, solve_ffc, solve_lda
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
    given = alone("ffc", Wish(5, 3), BATCHES, ridges=(0.5,), normalise=True)
    np.testing.assert_allclose(weights(given), solve_ffc(plain(), 0.5).weights, atol=1e-12)


def test_what_is_published_beside_a_head() -> None:
    document = answered("ffc", publish="lda").answer.documents["lda"]
    np.testing.assert_allclose(document.arrays["weights"], solve_lda(plain()).weights, atol=1e-10)


def test_the_rounds_that_lead_to_a_head() -> None:
    assert chain("ffc", bias=True) == ("ffc-bias",)
    assert chain("rff") == ("ffc", "rff")
    assert chain("ccvr") == ("ccvr",)
    with pytest.raises(CalibrationError, match="a rff head takes no bias; that of ffc does"):
        chain("rff", bias=True)
    for name in ("mean", "refine"):
        with pytest.raises(CalibrationError, match=f"a {name} round exists under noise alone"):
            chain(name)
