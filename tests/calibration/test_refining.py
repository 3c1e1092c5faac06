"""Rounds of gradients after a round of ridge: exact ones are gradient descent, noisy ones compose with it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, Head, LayoutMismatch, SumsLattice, solve_ffc
from calibration.centred import CentredHead
from calibration.errors import SumCheckFailed
from calibration.ffc import FFCStatistics
from calibration.privacy import NoiseTerms, compose, gdp_mu, noisy_layout
from calibration.questions import Earlier, Summed, Wish, ask, question
from calibration.questions.alone import Alone, alone
from calibration.questions.refining import Refined

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 3, 150)
ROWS = np.abs(RNG.normal(size=(150, 5))) + 1.5 * np.eye(3, 5)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
DATA = [(ROWS, LABELS)]


def wish(rounds: int = 3, **more: Any) -> Wish:
    return Wish(5, 3, {"rounds": rounds, **more})


def refined(first: Alone, rounds: int, **more: Any) -> list[Alone]:
    found = [first]
    for _ in range(rounds):
        found.append(alone("refine", wish(rounds, **more), DATA, earlier=found[-1].earlier))
    return found[1:]


@pytest.mark.parametrize("bias", [False, True])
def test_exact_rounds_are_preconditioned_gradient_descent(*, bias: bool) -> None:
    first = alone("ffc-bias" if bias else "ffc", Wish(5, 3), DATA)
    rows = np.column_stack([ROWS, np.ones(150)]) / math.sqrt(2) if bias else ROWS
    plain = FFCStatistics(5, 3, bias=bias)
    plain.update(ROWS, LABELS)
    found = solve_ffc(plain)
    W, wanted = found.raw_weights * math.log(9 * 2), np.eye(3)[LABELS]
    H = np.linalg.inv(rows.T @ rows + found.ridge * np.eye(len(W)))
    rounds = refined(first, 3, clip=0.7, step=1.5)
    for each in rounds:
        scores = np.exp(rows @ W)
        residuals = scores / scores.sum(axis=1, keepdims=True) - wanted
        residuals *= np.minimum(1, 0.7 / np.linalg.norm(residuals, axis=1))[:, None]
        W -= 1.5 * H @ (rows.T @ residuals)
        head = each.answer.head
        assert head is not None
        expected = W[:5] * math.sqrt(0.5) if bias else W
        np.testing.assert_allclose(head.weights, expected, atol=1e-6 * np.abs(W).max())
        if bias:
            assert head.bias is not None
            np.testing.assert_allclose(head.bias, W[5] * math.sqrt(0.5), atol=1e-6 * np.abs(W).max())
        each.question.check_head(head)
        assert (each.answer.records, each.answer.chosen_by) == (150, "gradient")
    assert [each.question.goes_on for each in rounds] == [True, True, False]
    assert not first.question.goes_on


def test_a_centred_head_stays_centred_and_can_be_judged() -> None:
    mean = alone("mean", Wish(5, 3), DATA)
    first = alone("ffc", Wish(5, 3), DATA, earlier=mean.earlier)
    [last] = refined(first, 1)
    head = last.answer.head
    assert isinstance(head, CentredHead)
    np.testing.assert_array_equal(head.centre, mean.statistics.mean)
    judged = alone("reliability", Wish(5, 3), DATA, earlier=last.earlier)
    assert judged.answer.head is not None
    assert judged.statistics.accuracy > 0.8
    for other in (
        Head(head.weights, None, ()),
        replace(head, centre=-head.centre),
        replace(head, weights=head.weights[:, :2]),
        replace(head, bias=np.zeros(3)),
    ):
        with pytest.raises(LayoutMismatch, match="not of the kind"):
            last.question.check_head(other)


def noisy_round(name: str, mu: float, earlier: Earlier | None, seed: int) -> tuple[Any, Any, Any]:
    """A round of one member; the mechanism, what was pooled, and what follows."""
    lattice = FeaturesLattice(12)
    parameters = {"rounds": 2, "clip": 1.0, "step": 2.0} if name == "refine" else {}
    asked = ask(name, Wish(5, 3, parameters, noisy=True), earlier)
    found = question(name, asked.layout, b"", asked.material)
    terms = NoiseTerms.for_classes(3, mu, 1e-5)
    mechanism = terms.mechanism(found, lattice, members=1, survivors_min=1, colluders=0)
    own = found.accumulator(lattice, normalise=False)
    for _ in range(40):
        own.update(ROWS, LABELS)
    [vector] = own.pieces(lattice, found.layout.elements)
    deviations = np.concatenate(
        [
            np.full(
                found.layout.slices[share.block].stop - found.layout.slices[share.block].start, share.variance
            )
            for share in mechanism.shares
        ]
    )
    noise = np.random.default_rng(seed).standard_normal(len(vector)) * np.sqrt(deviations)
    gathering, summed = found.gathering(lattice), Summed(lattice, 1, mechanism=mechanism)
    gathering.take(0, vector + np.rint(noise).astype(np.int64))
    pooled = found.gathered(gathering, summed)
    return mechanism, pooled, found.answer(pooled, summed)


def test_noisy_rounds_go_on_from_a_noisy_head_and_compose() -> None:
    total, earlier, charged = gdp_mu(8.0, 1e-5), None, []
    for seed, (name, share) in enumerate((("ffc", 0.5), ("refine", 0.25), ("refine", 0.25))):
        mechanism, pooled, answer = noisy_round(name, total * math.sqrt(share), earlier, seed)
        charged.append(mechanism.mu_round)
        earlier = Earlier(name, pooled, answer.head)
        if name == "refine":
            assert mechanism.layout.elements == 15
            assert mechanism.sensitivity == 1
            assert isinstance(pooled, Refined)
        assert 5_900 < answer.records < 6_100
    assert 0.999 * total < compose(charged) <= total
    assert answer.head is not None
    assert (answer.head.predict(ROWS) == LABELS).mean() > 0.85


def test_what_cannot_be_refined_is_refused_in_words() -> None:
    first = alone("ffc", Wish(5, 3), DATA)
    [last] = refined(first, 1)
    for asked, earlier, match in (
        (wish(1), last.earlier, r"round 2 of 1 with"),
        (wish(101), first.earlier, r"take 1 to 100 rounds"),
        (wish(step=2.5), first.earlier, r"a step of 2\.5"),
        (wish(clip=0.0), first.earlier, r"clipped to 0\.0"),
        (Wish(4, 3), first.earlier, r"the head is of 5 features and 3 classes, not 4 and 3"),
        (
            Wish(5, 3),
            alone("folds", Wish(5, 3), DATA).earlier,
            r"rests on one of ffc, ffc-bias, refine, not on folds",
        ),
        (Wish(5, 3), None, r"rests on one of ffc, ffc-bias, refine: name one"),
    ):
        with pytest.raises(CalibrationError, match=match):
            ask("refine", asked, earlier)


def test_sums_and_material_that_no_honest_round_has() -> None:
    [last] = refined(alone("ffc", Wish(5, 3), DATA), 1)
    lattice, asked = SumsLattice(31), last.question
    for sums in (np.r_[np.full(15, 2.0), 3.0], np.zeros(16), np.r_[np.zeros(15), 1.5]):
        gathering = asked.gathering(lattice)
        gathering.take(0, lattice.encode(sums))
        with pytest.raises(SumCheckFailed, match="gradients of length"):
            asked.gathered(gathering, Summed(lattice, 1))
    material = dict(asked.material)
    for changed, match in (
        ({**material, "bias": np.zeros(3)}, "not the linear one that it says"),
        ({**material, "empty_classes": np.zeros(1)}, "is none"),
        ({**material, "weights": np.zeros((4, 3))}, "other features or classes"),
        ({**material, "inverse": np.eye(4)}, "inverse has shape"),
    ):
        other = question("refine", asked.layout, b"", changed)
        gathering = other.gathering(lattice)
        with pytest.raises(LayoutMismatch, match=match):  # noqa: PT012 - a member meets one, a reader the other
            gathering.take(0, lattice.encode(np.r_[np.zeros(15), 3.0]))
            other.accumulator(lattice, normalise=False)
            other.gathered(gathering, Summed(lattice, 1))
    with pytest.raises(LayoutMismatch, match="not that of a refine round"):
        question(
            "refine", noisy_layout(5, 3).having(**dict(asked.layout.parameters)), b"", material
        ).accumulator(lattice, normalise=False)
    unnamed = question("refine", asked.layout.having(head="{"), b"", material)
    with pytest.raises(LayoutMismatch, match="of what kind the head is"):
        unnamed.accumulator(lattice, normalise=False)
