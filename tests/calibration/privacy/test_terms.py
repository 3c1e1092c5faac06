from __future__ import annotations

from typing import Any

import pytest

from calibration import CalibrationError, FeaturesLattice
from calibration.privacy import NOISY_BITS, NoiseTerms, noisy_layout
from calibration.questions import question

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 9, "colluders": 3}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("mu", 9e-7, "mu of a round's noise lies between 1e-06 and 100, not 9e-07"),
        ("mu", 1e-200, "mu of a round's noise lies between 1e-06 and 100"),
        ("mu", 101.0, "mu of a round's noise lies between 1e-06 and 100"),
        ("mu", 1, "mu of a round's noise lies between"),
        ("weight", 9e-4, "weight of a round's noise lies between 0.001 and 1000, not 0.0009"),
        ("weight", 1e-300, "weight of a round's noise lies between 0.001 and 1000"),
        ("weight", 1e4, "weight of a round's noise lies between 0.001 and 1000"),
        ("delta", 0.0, "delta of a round's noise lies above 0 and up to 0.5, not 0.0"),
        ("delta", 0.6, "delta of a round's noise lies above 0 and up to 0.5"),
    ],
)
def test_terms_outside_their_bounds_are_refused_by_name(field: str, value: Any, words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        NoiseTerms(**({"mu": 1.0, "weight": 1.0} | {field: value}))


@pytest.mark.parametrize("mu", [1e-6, 100.0])
@pytest.mark.parametrize("weight", [1e-3, 1e3])
@pytest.mark.parametrize("bits", [4, 12, 20])
def test_terms_within_their_bounds_size_the_noise_or_say_why_not(mu: float, weight: float, bits: int) -> None:
    try:
        asked = question("ffc", noisy_layout(8, 3))
        made = NoiseTerms(mu, weight).mechanism(asked, FeaturesLattice(bits), **COHORT)
    except CalibrationError:
        return
    assert bits <= NOISY_BITS
    assert made.mu_round <= mu
    assert min(min(share.variances) for share in made.shares) >= 16
