from __future__ import annotations

from typing import Any

import pytest

from calibration import CalibrationError, FeaturesLattice
from calibration.privacy import NOISY_BITS, Neighbours, NoiseTerms, noisy_layout
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
        ("member_records", 0, "a member is cut to 1 record or more, below 2.32, not to 0"),
        ("member_records", 2**32, "a member is cut to 1 record or more"),
        ("member_records", True, "a member is cut to 1 record or more"),
        ("member_records", 2.0, "a member is cut to 1 record or more"),
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


def test_a_member_as_a_whole_costs_as_much_noise_as_its_records_alike() -> None:
    asked, lattice = question("ffc", noisy_layout(8, 3)), FeaturesLattice(12)
    one = NoiseTerms(0.5, 1.0)
    whole = NoiseTerms(0.5, 1.0, member_records=30)
    replaced = NoiseTerms(0.5, 1.0, neighbours=Neighbours.REPLACE, member_records=30)
    of_record, of_member, of_replaced = (
        each.mechanism(asked, lattice, **COHORT) for each in (one, whole, replaced)
    )
    assert of_member.sigma == pytest.approx(30 * of_record.sigma)
    assert of_replaced.sigma == pytest.approx(60 * of_record.sigma)
    assert whole.bound(asked, lattice) == replaced.bound(asked, lattice) == 30 * of_record.sensitivity
    assert one.bound(asked, lattice) is None
    for terms in (one, whole, replaced):
        assert NoiseTerms.from_bytes(terms.to_bytes()) == terms
    promise = whole.promise(of_member)
    assert promise["member_records"] == 30
    assert one.promise(of_record)["member_records"] is None
