"""Noisy rounds of gradients after a noisy round of ridge: with next to no noise gradient descent, and composing with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, Head, LayoutMismatch
from calibration.centred import CentredHead
from calibration.privacy import Mechanism, NoiseTerms, compose, gdp_mu, noisy_layout
from calibration.questions import Answer, Earlier, Question, Summed, Wish, ask, question
from calibration.questions.refining import Refined

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 3, 150)
ROWS = np.abs(RNG.normal(size=(150, 5))) + 1.5 * np.eye(3, 5)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
QUIET = 100.0
"""μ of so little noise that it hardly shows."""


def wish(rounds: int = 3, **more: Any) -> Wish:
    return Wish(5, 3, {"rounds": rounds, **more}, noisy=True)


@dataclass(frozen=True)
class Done:
    """A noisy round of one member."""

    question: Question
    mechanism: Mechanism
    pooled: Any
    answer: Answer

    @property
    def earlier(self) -> Earlier:
        return Earlier(self.question.name, self.pooled, self.answer.head)


def noisy_round(
    name: str,
    mu: float,
    earlier: Earlier | None,
    seed: int = 0,
    given: Wish | None = None,
) -> Done:
    lattice = FeaturesLattice(12)
    parameters = (given or wish(2)).parameters if name == "refine" else {}
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
    return Done(found, mechanism, pooled, found.answer(pooled, summed))


def test_noisy_rounds_go_on_from_a_noisy_head_and_compose() -> None:
    total, earlier, charged = gdp_mu(8.0, 1e-5), None, []
    for seed, (name, share) in enumerate((("ffc", 0.5), ("refine", 0.25), ("refine", 0.25))):
        done = noisy_round(name, total * math.sqrt(share), earlier, seed)
        charged.append(done.mechanism.mu_round)
        earlier = done.earlier
        if name == "refine":
            assert done.mechanism.layout.elements == 15
            assert done.mechanism.sensitivity == 1
            assert isinstance(done.pooled, Refined)
        assert 5_900 < done.answer.records < 6_100
    assert 0.999 * total < compose(charged) <= total
    assert done.answer.head is not None
    assert (done.answer.head.predict(ROWS) == LABELS).mean() > 0.85


@pytest.mark.parametrize("bias", [False, True])
def test_rounds_of_next_to_no_noise_are_preconditioned_gradient_descent(*, bias: bool) -> None:
    first = noisy_round("ffc-bias" if bias else "ffc", QUIET, None)
    rows = np.column_stack([ROWS, np.ones(150)]) / math.sqrt(2) if bias else ROWS
    start = first.pooled.solution.weights * math.log(9 * 2)
    W = start if not bias else np.vstack([start, first.pooled.solution.bias * math.log(9 * 2)]) * math.sqrt(2)
    H, wanted, earlier = first.pooled.solution.inverse, np.eye(3)[LABELS], first.earlier
    rounds = []
    for _ in range(3):
        rounds.append(noisy_round("refine", QUIET, earlier, given=wish(3, clip=0.7, step=1.5)))
        earlier = rounds[-1].earlier
        scores = np.exp(rows @ W)
        residuals = scores / scores.sum(axis=1, keepdims=True) - wanted
        residuals *= np.minimum(1, 0.7 / np.linalg.norm(residuals, axis=1))[:, None]
        W = W - 1.5 * H @ (40 * rows.T @ residuals)
        head = rounds[-1].answer.head
        assert head is not None
        expected = W[:5] * math.sqrt(0.5) if bias else W
        np.testing.assert_allclose(head.weights, expected, atol=1e-2 * np.abs(W).max())
        rounds[-1].question.check_head(head)
        assert rounds[-1].answer.chosen_by == "gradient"
    assert [each.question.goes_on for each in rounds] == [True, True, False]
    assert not first.question.goes_on


def test_a_centred_head_stays_centred() -> None:
    mean = noisy_round("mean", QUIET, None)
    first = noisy_round("ffc", QUIET, mean.earlier)
    last = noisy_round("refine", QUIET, first.earlier)
    head = last.answer.head
    assert isinstance(head, CentredHead)
    np.testing.assert_array_equal(head.centre, mean.pooled.mean)
    assert (head.predict(ROWS) == LABELS).mean() > 0.8
    for other in (
        Head(head.weights, None, ()),
        replace(head, centre=-head.centre),
        replace(head, weights=head.weights[:, :2]),
        replace(head, bias=np.zeros(3)),
    ):
        with pytest.raises(LayoutMismatch, match="not of the kind"):
            last.question.check_head(other)


def test_what_cannot_be_refined_is_refused_in_words() -> None:
    first = noisy_round("ffc", QUIET, None)
    last = noisy_round("refine", QUIET, first.earlier)
    for asked, earlier, match in (
        (wish(1), last.earlier, r"round 2 of 1 with"),
        (wish(101), first.earlier, r"take 1 to 100 rounds"),
        (wish(step=2.5), first.earlier, r"a step of 2\.5"),
        (wish(clip=0.0), first.earlier, r"clipped to 0\.0"),
        (Wish(4, 3, noisy=True), first.earlier, r"the head is of 5 features and 3 classes, not 4 and 3"),
        (wish(), Earlier("ccvr", None, None), r"rests on one of ffc, ffc-bias, refine, not on ccvr"),
        (wish(), None, r"rests on one of ffc, ffc-bias, refine: name one"),
        (Wish(5, 3), first.earlier, r"a refine round exists under noise alone"),
    ):
        with pytest.raises(CalibrationError, match=match):
            ask("refine", asked, earlier)


def test_material_that_no_honest_round_has() -> None:
    last = noisy_round("refine", QUIET, noisy_round("ffc", QUIET, None).earlier)
    lattice, asked, material = FeaturesLattice(12), last.question, dict(last.question.material)
    for changed, match in (
        ({**material, "bias": np.zeros(3)}, "not the linear one that it says"),
        ({**material, "empty_classes": np.zeros(1)}, "is none"),
        ({**material, "weights": np.zeros((4, 3))}, "other features or classes"),
    ):
        with pytest.raises(LayoutMismatch, match=match):
            question("refine", asked.layout, b"", changed).accumulator(lattice, normalise=False)
    other = question("refine", asked.layout, b"", {**material, "inverse": np.eye(4)})
    with pytest.raises(LayoutMismatch, match="inverse has shape"):
        other.gathered(other.gathering(lattice), Summed(lattice, 1, mechanism=last.mechanism))
    with pytest.raises(LayoutMismatch, match="not that of a refine round"):
        question(
            "refine", noisy_layout(5, 3).having(**dict(asked.layout.parameters)), b"", material
        ).accumulator(lattice, normalise=False)
    unnamed = question("refine", asked.layout.having(head="{"), b"", material)
    with pytest.raises(LayoutMismatch, match="of what kind the head is"):
        unnamed.accumulator(lattice, normalise=False)
