from __future__ import annotations

import math
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibration import (
    CalibrationError,
    FeaturesLattice,
    HeadroomExceeded,
    LayoutMismatch,
    NoiseTooSmall,
    WrongDtype,
    ffc_layout,
)
from calibration.privacy import (
    Mechanism,
    MemberNoise,
    Share,
    default_weight,
    ffc_sensitivity,
    gdp_delta,
    gdp_mu,
    noisy_layout,
)
from calibration.privacy.mechanism import DEFECT, diagonal_of

DELTA = 1e-5
LAYOUT = noisy_layout(8, 3)
Keystream = Callable[[int], Callable[[int], bytes]]


def mechanism(**changes: Any) -> Mechanism:
    terms: dict[str, Any] = {
        "layout": LAYOUT,
        "lattice": FeaturesLattice(12),
        "weight": 1.0,
        "sensitivity": ffc_sensitivity(1),
        "mu": gdp_mu(1, DELTA),
        "members": 12,
        "survivors_min": 8,
        "colluders": 3,
    }
    return Mechanism(**(terms | changes))


def test_shares_are_the_rule_of_the_terms() -> None:
    made = mechanism(weight=2.0, sensitivity=ffc_sensitivity(2))
    sigma = math.sqrt(5) / gdp_mu(1, DELTA)
    assert made.sigma == pytest.approx(sigma)
    diagonal, half, U = (4**12 * sigma) ** 2, (4**12 * sigma) ** 2 / 2, (2**12 * sigma / 2) ** 2
    assert made.shares == (
        Share("V", math.ceil((half + 4) / 5), math.ceil((diagonal + 4) / 5)),
        Share("U", math.ceil((U + 4) / 5)),
    )
    assert made.deviation("V", 5) == pytest.approx(sigma)
    assert made.deviation("U", 20) == pytest.approx(sigma)
    counted = mechanism(
        layout=noisy_layout(8, 3, counts=True),
        counts_weight=0.1,
        sensitivity=ffc_sensitivity(1, counts_weight=0.1),
    )
    assert counted.deviation("N", 5) == pytest.approx(10 * counted.sigma, rel=0.01)


@pytest.mark.parametrize("bits", [3, 5, 12])
@pytest.mark.parametrize(("survivors_min", "colluders"), [(3, 0), (8, 3), (12, 3)])
def test_rounding_shares_up_only_lowers_mu(bits: int, survivors_min: int, colluders: int) -> None:
    made = mechanism(lattice=FeaturesLattice(bits), survivors_min=survivors_min, colluders=colluders)
    assert 0.9 * made.mu < made.mu_round <= made.mu * (1 + 1e-12)
    honest = survivors_min - colluders
    # By hand, from the shares: each weighted coordinate's variance less 4 steps².
    V, U = made.shares
    assert V.diagonal is not None
    smallest = min(
        2 * (honest * V.variance - DEFECT) / 4 ** (2 * bits),
        (honest * V.diagonal - DEFECT) / 4 ** (2 * bits),
        (honest * U.variance - DEFECT) / 4**bits,
    )
    assert made.mu_round == pytest.approx(made.sensitivity / math.sqrt(smallest))
    assert made.epsilon(DELTA) <= 1 + 1e-9
    assert made.epsilon(DELTA) < made.published_epsilon(DELTA) < 1.15


def test_mu_round_bounds_every_neighbour(rng: np.random.Generator) -> None:
    made = mechanism(lattice=FeaturesLattice(3), weight=1.3, sensitivity=ffc_sensitivity(1.3))
    half, whole = made.shares[0].variances
    variances = np.concatenate(
        [
            np.where(np.isin(np.arange(36), diagonal_of(8)), whole, half),
            np.full(24, made.shares[1].variance),
        ]
    )
    worst = 0.0
    for _ in range(500):
        z = rng.standard_normal(8) ** 3
        q = np.trunc(8 * z / np.linalg.norm(z))
        U = np.zeros((8, 3))
        U[:, 1] = q
        difference = np.concatenate([np.outer(q, q)[np.triu_indices(8)], U.ravel()])
        worst = max(worst, float(np.sum(difference**2 / (made.honest * variances - DEFECT))))
    assert 0.5 * made.mu_round < math.sqrt(worst) <= made.mu_round


@pytest.mark.parametrize("grows", ["survivors_min", "mu"])
def test_it_is_monotone_in_its_terms(grows: str) -> None:
    values: Any = {"survivors_min": [4, 6, 9, 12], "mu": [0.1, 0.3, 1.0]}[grows]
    shares = [mechanism(**{grows: value}).shares[0].variance for value in values]
    assert shares == sorted(shares, reverse=True)
    fewer = [mechanism(colluders=a).shares[0].variance for a in (0, 1, 3, 7)]
    assert fewer == sorted(fewer)


def test_the_tail_is_twelve_deviations_of_everybody_s_noise() -> None:
    made = mechanism()
    largest = made.shares[0].diagonal
    assert largest is not None
    assert made.noise_tail >= 12 * math.sqrt(12 * largest)
    assert made.noise_tail <= 12 * math.sqrt(12 * largest) + 12
    bits = made.lattice.required_bits(65_535, 12, made.noise_tail)
    # The largest sum that the tail allows lifts back from a ring of these bits; of one bit fewer it would not.
    largest = 65_535 * 4**made.lattice.bits + made.noise_tail
    for width, same in ((bits, True), (bits - 1, False)):
        for value in (largest, -largest):
            assert ((value + 2 ** (width - 1)) % 2**width - 2 ** (width - 1) == value) is same
    made.lattice.check_headroom(bits, 65_535, 12, made.noise_tail)
    with pytest.raises(HeadroomExceeded):
        made.lattice.check_headroom(bits - 1, 65_535, 12, made.noise_tail)


def test_shares_below_four_steps_are_refused_with_what_helps() -> None:
    coarse = {"layout": noisy_layout(2, 2), "lattice": FeaturesLattice(1)}
    with pytest.raises(
        NoiseTooSmall, match=r"noise on V would have .* below 16: take a finer lattice"
    ) as caught:
        mechanism(**coarse, mu=1.13)
    assert caught.value.variance == math.ceil((16 * 2 / 1.13**2 / 2 + 4) / 5)
    with pytest.raises(NoiseTooSmall, match="noise on N would have"):
        mechanism(layout=noisy_layout(8, 3, counts=True), lattice=FeaturesLattice(4), counts_weight=500.0)
    # (σ_U² + 4)/5 = 16 exactly, and the next larger μ is refused
    at_the_limit = mechanism(**coarse, mu=2 * math.sqrt(2 / (5 * 16 - 4 - 1)))
    assert at_the_limit.shares[1].variance == 16
    with pytest.raises(NoiseTooSmall, match="noise on U would have a variance of 15 steps²"):
        mechanism(**coarse, mu=2 * math.sqrt(2 / (5 * 15 - 4)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colluders": -1}, "0 ≤ a < n_min ≤ n"),
        ({"colluders": 8}, "0 ≤ a < n_min ≤ n"),
        ({"survivors_min": 13}, "0 ≤ a < n_min ≤ n"),
        ({"mu": 0.0}, "mu is positive"),
        ({"mu": math.nan}, "mu is positive"),
        ({"sensitivity": math.inf}, "sensitivity is positive"),
        ({"weight": -1.0}, "weight is positive"),
        ({"lattice": FeaturesLattice(1)}, r"8 features need a lattice finer than 1 bits"),
        ({"mu": 1e-9}, "beyond the sampler's 2\\^62"),
    ],
)
def test_other_terms_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        mechanism(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": ffc_layout(8, 3)},
        {"layout": ffc_layout(8, 3), "counts_weight": -1.0},
        {"counts_weight": 1.0},
        {"layout": replace(LAYOUT, blocks=LAYOUT.blocks[:1])},
    ],
)
def test_nothing_exact_leaves_beside_noise(changes: dict[str, Any]) -> None:
    with pytest.raises(LayoutMismatch, match="make it with noisy_layout"):
        mechanism(**changes)


def test_each_block_gets_its_variance_in_whatever_chunks(keystream: Keystream) -> None:
    layout = noisy_layout(40, 4, bias=True, counts=True)
    shares = (Share("V", 400, 900), Share("U", 25), Share("N", 64))
    draws = 300
    noise = np.zeros((draws, layout.elements), np.int64)
    for index, row in enumerate(noise):
        member = MemberNoise(layout, shares, keystream(index))
        for part in np.split(row, [0, 1, 7, 40, 41, 500, 860, 862, 1024]):
            member.add_to(part)
    variances = (noise**2).mean(axis=0)
    diagonal = np.zeros(861, np.bool_)
    diagonal[diagonal_of(41)] = True
    V = variances[layout.slices["V"]]
    assert V[diagonal].mean() == pytest.approx(900, rel=0.05)
    assert V[~diagonal].mean() == pytest.approx(400, rel=0.02)
    assert V[~diagonal].max() < 600
    assert V[diagonal].min() > 600
    assert variances[layout.slices["U"]].mean() == pytest.approx(25, rel=0.03)
    assert variances[layout.slices["N"]].mean() == pytest.approx(64, rel=0.2)
    assert abs(noise.mean()) < 0.2


def test_noise_is_added_to_what_is_there_once(keystream: Keystream) -> None:
    made = mechanism()
    vector = np.arange(LAYOUT.elements, dtype=np.int64)
    plain = np.zeros(LAYOUT.elements, np.int64)
    MemberNoise(LAYOUT, made.shares, keystream(1)).add_to(plain)
    member = MemberNoise(LAYOUT, made.shares, keystream(1))
    member.add_to(vector)
    assert (vector - plain).tolist() == list(range(LAYOUT.elements))
    assert repr(member) == "<MemberNoise at element 60 of 60>"
    with pytest.raises(LayoutMismatch, match="takes its noise once"):
        member.add_to(vector[:1])
    with pytest.raises(LayoutMismatch, match="takes its noise once"):
        MemberNoise(LAYOUT, made.shares, os.urandom).add_to(vector.reshape(6, 10))
    with pytest.raises(WrongDtype, match="centred lift"):
        MemberNoise(LAYOUT, made.shares, os.urandom).add_to(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(LayoutMismatch, match="are not those of the layout's blocks"):
        MemberNoise(LAYOUT, made.shares[::-1], os.urandom)


def test_a_share_of_zero_is_no_noise(keystream: Keystream) -> None:
    vector = np.zeros(LAYOUT.elements, np.int64)
    MemberNoise(LAYOUT, (Share("V", 100, 100), Share("U", 0)), keystream(2)).add_to(vector)
    assert vector[LAYOUT.slices["V"]].any()
    assert not vector[LAYOUT.slices["U"]].any()


def test_memory_does_not_grow_with_the_vector(keystream: Keystream) -> None:
    layout = noisy_layout(1280, 100)
    made = mechanism(layout=layout)
    member = MemberNoise(layout, made.shares, keystream(3))
    chunk = np.zeros(2**14, np.int64)
    member.add_to(chunk)
    tracemalloc.start()
    for _ in range(30):
        member.add_to(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6


def test_the_weight_follows_the_classes() -> None:
    assert [default_weight(classes) for classes in (2, 20, 21, 100)] == [1, 1, 2, 2]


def sum_of_shares(variance: int, shares: int) -> Any:
    """The exact probabilities of a sum of discrete Gaussians, far into its tails."""
    points = np.arange(-400, 401)
    share = np.exp(-(points**2) / (2 * variance))
    share /= share.sum()
    total = share
    for _ in range(shares - 1):
        total = np.convolve(total, share)
    return total


@pytest.mark.parametrize("variance", [16, 25])
@pytest.mark.parametrize("shares", [1, 2, 5])
def test_exact_probabilities_of_a_sum_of_shares_keep_the_own_proof(variance: int, shares: int) -> None:
    mass = sum_of_shares(variance, shares)
    excesses = {}
    for defect in (0, DEFECT):
        excess = []
        for shift in (1, 2, 5, 12):
            mu = shift / math.sqrt(shares * variance - defect)
            before, after = np.append(mass, np.zeros(shift)), np.append(np.zeros(shift), mass)
            for epsilon in np.linspace(0, 8 * mu + mu**2 / 2, 60).tolist():
                exact = float(np.maximum(before - math.exp(epsilon) * after, 0).sum())
                excess.append((exact - gdp_delta(mu, epsilon)) / max(gdp_delta(mu, epsilon), 1e-11))
        excesses[defect] = max(excess)
    assert excesses[DEFECT] < 0
    assert excesses[0] > 0.01  # without it a grid is a little worse than a continuum
