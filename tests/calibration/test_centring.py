"""The mean of all records, and heads of features less that mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration import (
    CalibrationError,
    FeaturesLattice,
    FFCStatistics,
    LayoutMismatch,
    solve_ffc,
)
from calibration.centred import CentredHead, centred
from calibration.errors import ShapeMismatch, ZeroRow
from calibration.head_file import arrays_of, form_of, head_from
from calibration.privacy import MemberNoise, Neighbours, NoiseTerms, gdp_epsilon, gdp_mu, noisy_layout
from calibration.questions import Earlier, Summed, Wish, ask, question
from calibration.questions.centring import Mean
from calibration.random_features import KernelHead, RandomFeatures
from protocol.keystream import Keystream

_SQRT_HALF = float(np.sqrt(0.5))
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 90)
ROWS = np.abs(RNG.normal(size=(90, 5))) + np.eye(3, 5)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
WISH = Wish(5, 3, noisy=True)
LATTICE = FeaturesLattice(12)
QUIET = 100.0
"""μ of so little noise that it hardly shows."""


class Done:
    """A noisy round of one member over the records, forty times."""

    def __init__(self, name: str, earlier: Earlier | None = None, bits: int = 12) -> None:
        lattice = FeaturesLattice(bits)
        asked = ask(name, WISH, earlier)
        self.question = question(name, asked.layout, b"", asked.material)
        terms = NoiseTerms(QUIET if bits == 12 else 10.0, 1.0)
        mechanism = terms.mechanism(self.question, lattice, members=1, survivors_min=1, colluders=0)
        own = self.question.accumulator(lattice, normalise=True)
        for _ in range(40):
            own.update(ROWS, LABELS)
        [self.exact] = own.pieces(lattice, self.question.layout.elements)
        total = self.exact.copy()
        MemberNoise(self.question.layout, mechanism.shares, Keystream(bytes(32))).add_to(total)
        gathering = self.question.gathering(lattice)
        gathering.take(0, total)
        summed = Summed(lattice, 1, mechanism=mechanism)
        self.pooled: Any = self.question.gathered(gathering, summed)
        self.answer = self.question.answer(self.pooled, summed)
        self.earlier = Earlier(name, self.pooled, self.answer.head)


MEAN = Done("mean")


@pytest.mark.parametrize("bias", [False, True])
def test_a_round_over_a_mean_sums_centred_features(*, bias: bool) -> None:
    assert MEAN.answer.head is None
    assert MEAN.answer.records == pytest.approx(3600, abs=1)
    mean = MEAN.answer.documents["mean"].arrays["mean"]
    np.testing.assert_allclose(mean, ROWS.mean(axis=0), atol=1e-3)
    found = Done("ffc-bias" if bias else "ffc", MEAN.earlier).pooled
    plain = FFCStatistics(5, 3, bias=bias, normalise=True)
    plain.update(ROWS - mean, LABELS)
    np.testing.assert_allclose(found.V / 40, plain.V, atol=0.05)
    np.testing.assert_allclose(found.U / 40, plain.U, atol=0.05)


def test_a_row_moves_the_sum_by_one_at_most() -> None:
    coarse, lattice = Done("mean", bits=6), FeaturesLattice(6)
    rows = lattice.encode_rows(ROWS, bias=True)
    np.testing.assert_array_equal(coarse.exact, 40 * rows.sum(axis=0))
    assert (np.linalg.norm(rows, axis=1) <= 2**6).all()
    assert coarse.pooled.records == pytest.approx(3600, abs=2)
    np.testing.assert_allclose(coarse.pooled.mean, ROWS.mean(axis=0), atol=2.0**-6)


def test_sums_that_noise_drowned() -> None:
    with pytest.raises(CalibrationError, match="the noise drowned the records"):
        _ = Mean(np.array([1.0, -0.5]), _SQRT_HALF, 1.0).mean
    assert np.linalg.norm(Mean(np.array([3.0, 4, 1]), _SQRT_HALF, 1.0).mean) == pytest.approx(1)
    with pytest.raises(CalibrationError, match="drowned the records' spread"):
        _ = Mean(np.array([2.0, 0, 1]), _SQRT_HALF, 0.1).spread
    with pytest.raises(LayoutMismatch, match="ends in no head"):
        MEAN.question.check_head(CentredHead(ROWS, None, (), ROWS[0]))


def test_a_centred_head_in_its_file() -> None:
    head = Done("ffc", MEAN.earlier).answer.head
    assert isinstance(head, CentredHead)
    arrays = arrays_of(head)
    again = head_from(arrays, form_of(head), ())
    np.testing.assert_array_equal(again.scores(ROWS), head.scores(ROWS))
    for bad in ({**arrays, "centre": np.zeros(4)}, {"weights": head.weights}):
        with pytest.raises(ShapeMismatch):
            head_from(bad, form_of(head), ())
    with pytest.raises(ZeroRow):
        centred(np.vstack([ROWS[0], ROWS[1]]), ROWS[1])


def test_a_centred_round_takes_its_own_head_and_sums_alone() -> None:
    asked = Done("ffc", MEAN.earlier)
    assert asked.question.takes(asked.question.layout)
    assert not asked.question.takes(FFCStatistics(5, 3).layout)
    head = asked.answer.head
    assert isinstance(head, CentredHead)
    asked.question.check_head(head)
    for other in (solve_ffc(_plain()), CentredHead(head.weights, None, (), ROWS[0])):
        with pytest.raises(LayoutMismatch, match="does not take off the mean"):
            asked.question.check_head(other)
    with pytest.raises(LayoutMismatch, match="features to"):
        asked.question.check_head(CentredHead(head.weights[:, :2], None, (), head.centre))


def _plain() -> FFCStatistics:
    statistics = FFCStatistics(5, 3)
    statistics.update(ROWS, LABELS)
    return statistics


def test_what_does_not_go_with_a_mean() -> None:
    over = Done("ffc", MEAN.earlier)
    for name, wish, earlier, match in (
        (
            "ffc",
            Wish(5, 3, {"publish": "lda"}, noisy=True),
            MEAN.earlier,
            "lda can't be published of centred features",
        ),
        ("ffc", Wish(4, 3, noisy=True), MEAN.earlier, "the mean is of 5 features, not 4"),
        ("rff", WISH, over.earlier, "a noisy round of ffc tells no bandwidth"),
    ):
        with pytest.raises(CalibrationError, match=match):
            ask(name, wish, earlier)


def test_what_a_mean_s_noise_rests_on() -> None:
    mean = question("mean", ask("mean", WISH).layout)
    for neighbours, nonnegative, expected in (
        (Neighbours.ADD_REMOVE, False, 1.0),
        (Neighbours.REPLACE, False, 2**0.5),
        (Neighbours.REPLACE, True, 1.0),
    ):
        terms = NoiseTerms(0.5, 1.0, neighbours=neighbours, nonnegative=nonnegative)
        cohort: Any = {"members": 12, "survivors_min": 8, "colluders": 3}
        made = terms.mechanism(mean, FeaturesLattice(12), **cohort)
        assert expected / 0.5 <= made.sigma <= 1.0003 * expected / 0.5
        assert made.mu_round <= 0.5
    away = question("ffc", noisy_layout(5, 3).having(centre=True))
    with pytest.raises(CalibrationError, match="centred and random features are below 0, too"):
        NoiseTerms(0.5, 1.0, nonnegative=True).mechanism(away, FeaturesLattice(12), **cohort)
    mapped = question("rff", ask("rff", Wish(5, 3, {"size": 8, "bandwidth": 0.5}, noisy=True)).layout)
    with pytest.raises(CalibrationError, match="centred and random features are below 0, too"):
        NoiseTerms(0.5, 1.0, nonnegative=True).mechanism(mapped, FeaturesLattice(12), **cohort)


@pytest.mark.parametrize("centre", [False, 0, 1, 1.0, "true", 0.0])
def test_a_round_that_is_centred_says_so_in_one_way(centre: Any) -> None:
    for name, blocks in (("ffc", noisy_layout(5, 3)), ("ffc-bias", noisy_layout(5, 3, bias=True))):
        layout = blocks.having(centre=centre)
        asked = question(name, layout, b"", {"centre": np.full(5, 0.5)})
        with pytest.raises(LayoutMismatch, match=f"centre is .* in the terms of a {name} round"):
            _ = asked.dim
        with pytest.raises(LayoutMismatch, match="true, or left out"):
            asked.accumulator(FeaturesLattice(12), normalise=True)
        terms = NoiseTerms(0.5, 1.0, neighbours=Neighbours.REPLACE, nonnegative=True)
        with pytest.raises(CalibrationError, match="centred and random features are below 0, too"):
            terms.mechanism(asked, FeaturesLattice(12), members=12, survivors_min=8, colluders=3)


def released(
    name: str, data: Any, epsilon: float, seed: int, earlier: Earlier | None = None, **parameters: Any
) -> Any:
    """A noisy round of twelve members; what was pooled and what follows."""
    lattice, source = FeaturesLattice(12), Keystream(seed.to_bytes(32, "little"))
    layout = ask(name, Wish(64, 10, parameters, noisy=True), earlier)
    asked = question(name, layout.layout, b"", layout.material)
    terms = NoiseTerms.for_classes(10, gdp_mu(epsilon, 1e-5), 1e-5)
    mechanism = terms.mechanism(asked, lattice, members=12, survivors_min=12, colluders=0)
    total = np.zeros(asked.layout.elements, np.int64)
    for member in range(12):
        own = asked.accumulator(lattice, normalise=True)
        own.update(data[0][member::12], data[1][member::12])
        [vector] = own.pieces(lattice, len(total))
        MemberNoise(asked.layout, mechanism.shares, source).add_to(noisy := vector.copy())
        total += noisy
    gathering, summed = asked.gathering(lattice), Summed(lattice, 12, mechanism=mechanism)
    gathering.take(0, total)
    pooled = asked.gathered(gathering, summed)
    return pooled, asked.answer(pooled, summed).head


def test_random_features_under_noise_of_their_own_mean_s_bandwidth() -> None:
    digits = load_digits()
    data = digits.data[:1300], digits.target[:1300]
    mean, _ = released("mean", data, 8.0, 1)
    pooled, head = released("rff", data, 8.0, 2, Earlier("mean", mean, None), size=64)
    assert isinstance(head, KernelHead)
    assert head.map.bandwidth == pytest.approx(np.sqrt(1 - mean.mean @ mean.mean), rel=1e-3)
    assert pooled.V.shape == (64, 64)
    assert abs(pooled.records - 1300) < 100
    right = head.predict(digits.data[1300:], normalise=True) == digits.target[1300:]
    assert right.mean() > 0.6
    noisy, _ = released("ffc", data, 8.0, 3)
    for told, reason in (
        (Earlier("ffc", noisy, None), "a noisy round of ffc tells no bandwidth"),
        (None, "needs a bandwidth"),
    ):
        with pytest.raises(CalibrationError, match=reason):
            ask("rff", Wish(64, 10, {}, noisy=True), told)


def test_random_features_of_integers_are_those_of_the_map() -> None:
    wish = Wish(5, 3, {"size": 8, "bandwidth": 0.5}, noisy=True)
    asked = question("rff", ask("rff", wish).layout, b"context")
    accumulator = asked.accumulator(LATTICE, normalise=False)
    accumulator.update(ROWS, LABELS)
    [vector] = accumulator.pieces(LATTICE, 1000)
    phi = RandomFeatures(5, 8, 0.5, b"context")(ROWS)
    V = LATTICE.decode(asked.layout.unflatten(vector)["V"], 2)
    np.testing.assert_allclose(V, phi.T @ phi, atol=90 * 2.0**-11)


@pytest.mark.slow
def test_at_one_budget_a_centred_noisy_head_is_right_more_often() -> None:
    digits, rng = load_digits(), np.random.default_rng(0)
    mu, gains = gdp_mu(1.0, 1e-5), []
    for split in range(6):
        order = rng.permutation(len(digits.target))
        fit, test = order[:1300], order[1300:]
        data = digits.data[fit], digits.target[fit]
        _, plain = released("ffc", data, 1.0, 3 * split)
        shares = [gdp_epsilon(mu * share**0.5, 1e-5) for share in (0.1, 0.9)]  # μ² of the two rounds adds up
        mean, _ = released("mean", data, shares[0], 3 * split + 1)
        _, away = released("ffc", data, shares[1], 3 * split + 2, Earlier("mean", mean, None))
        right = [
            (head.predict(digits.data[test], normalise=True) == digits.target[test]).mean()
            for head in (plain, away)
        ]
        gains.append(right[1] - right[0])
    assert np.mean(gains) > 0.02  # 4 points; at ε = 0.5/2/4/8 7, 3.5, 1.1, 1.3


def test_the_noise_in_a_mean_does_not_narrow_the_bandwidth() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 512)) + 1.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    exact = Mean(np.append(rows, np.ones((2000, 1)), axis=1).sum(axis=0) * _SQRT_HALF, _SQRT_HALF, 0.0)
    deviation = 12.0
    noisy = [
        Mean(exact.sums + rng.normal(scale=deviation, size=513), _SQRT_HALF, deviation) for _ in range(50)
    ]
    assert np.mean([each.spread for each in noisy]) == pytest.approx(exact.spread, rel=0.02)
    assert np.mean([1 - each.mean @ each.mean for each in noisy]) < 0.95 * exact.spread
