from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration import CalibrationError, FeaturesLattice, NonFinite, ShapeMismatch
from calibration.moments import IntegerMoments
from calibration.privacy import (
    Mechanism,
    ffc_release,
    gdp_mu,
    noise_edge,
    solve_adassp,
    solve_mean_ridge,
    solve_noisy,
)

Keystream = Callable[[int], Callable[[int], bytes]]
RULES = (solve_noisy, solve_adassp, solve_mean_ridge)
MEMBERS = 6


def digits() -> tuple[Any, Any, Any, Any]:
    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    rows = loaded.data[order] / np.linalg.norm(loaded.data[order], axis=1, keepdims=True)
    labels = loaded.target[order].astype(np.int64)
    return rows[360:], labels[360:], rows[:360], labels[:360]


def noisy_sums(
    rows: Any, labels: Any, epsilon: float, keystream: Keystream, seed: int, *, bias: bool = False
) -> tuple[Any, Any, float]:
    """V̂, Û and σ_V: members' integers with their own noise, added up."""
    lattice, release = FeaturesLattice(), ffc_release(rows.shape[1] + bias, 10)
    mechanism = Mechanism(release, 1, gdp_mu(epsilon, 1e-5), MEMBERS, MEMBERS, 0)
    total = np.zeros(release.layout.elements, np.int64)
    for member in range(MEMBERS):
        sums = IntegerMoments(release, constant=bias)
        sums.update(rows[member::MEMBERS], labels[member::MEMBERS])
        mechanism.add_noise(sums.flat, keystream(100 * seed + member))
        total += sums.flat
    blocks = release.layout.unflatten(total)
    return (
        lattice.decode(blocks["V"], 2),
        lattice.decode(blocks["U"], 1),
        mechanism.deviation("V", MEMBERS),
    )


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_on_digits_shrinkage_keeps_up_with_both_baselines(epsilon: float, keystream: Keystream) -> None:
    rows, labels, test, test_labels = digits()
    means = []
    for rule in RULES:
        hits = []
        for seed in range(3):
            V, U, deviation = noisy_sums(rows, labels, epsilon, keystream, seed)
            hits.append(np.mean(rule(V, U, deviation).predict(test) == test_labels))
        means.append(float(np.mean(hits)))
    assert means[0] > means[1] - 0.005
    assert means[0] > means[2]
    assert means[0] > {1.0: 0.8, 4.0: 0.9}[epsilon]


@pytest.mark.parametrize("rule", RULES)
def test_a_bias_is_solved_and_exported(rule: Any, keystream: Keystream) -> None:
    rows, labels, test, test_labels = digits()
    V, U, deviation = noisy_sums(rows, labels, 200.0, keystream, 9, bias=True)
    solution = rule(V, U, deviation, bias=True)
    assert solution.weights.shape == (64, 10)
    assert solution.bias is not None
    assert np.mean(solution.predict(test.astype(np.float32)) == test_labels) > 0.85
    assert np.mean(solution.predict(3 * test, normalise=True) == test_labels) > 0.85
    assert solution.records == pytest.approx(len(rows), rel=0.01)


def test_the_edge_is_where_the_noise_ends(rng: np.random.Generator) -> None:
    dim, deviation = 400, 0.7
    upper = np.triu(rng.standard_normal((dim, dim)) * deviation / math.sqrt(2), 1)
    noise = upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    assert np.linalg.norm(noise, 2) == pytest.approx(noise_edge(deviation, dim), rel=0.05)


def test_shrinkage_on_a_spectrum_with_a_known_answer() -> None:
    d = np.array([-3.0, 1.0, 2.0, 4.25, 4.75, 13.0])
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    V, U = (Q * d) @ Q.T, np.eye(6)[:, :2]
    deviation = 5 / math.sqrt(12)  # an edge of 5
    solution = solve_noisy(V, U, deviation)
    assert solution.edge == pytest.approx(5)
    assert solution.above == 1
    kept = (13 + 12) / 2
    bulk = (22 - kept) / 5
    assert solution.eigenvalues == pytest.approx([bulk + 2.5] * 5 + [kept + 2.5])
    expected = (Q / solution.eigenvalues) @ Q.T @ U
    assert solution.weights == pytest.approx(expected)
    assert solution.records == pytest.approx(22)
    assert solution.bias is None
    # The trace is kept: what the one eigenvalue lost, the others gained.
    assert solution.eigenvalues.sum() - 6 * 2.5 == pytest.approx(22)


def test_a_ridge_can_be_given() -> None:
    d = np.array([1.0, 2.0, 30.0])
    solution = solve_noisy(np.diag(d), np.eye(3), 1.0, ridge=7.0)
    free = solve_noisy(np.diag(d), np.eye(3), 1.0)
    assert solution.eigenvalues - 7 == pytest.approx(free.eigenvalues - free.edge / 2)


def test_a_trace_below_zero_leaves_half_the_edge() -> None:
    solution = solve_noisy(-np.eye(3), np.ones((3, 1)), 1.0)
    assert solution.eigenvalues == pytest.approx([math.sqrt(6) / 2] * 3)
    everything = solve_noisy(100 * np.eye(3), np.ones((3, 1)), 1.0)
    assert everything.above == 3


def test_the_baselines_on_a_known_spectrum() -> None:
    V, U = np.diag([1.0, 2.0, 6.0]), np.eye(3)
    mean = solve_mean_ridge(V, U, 0.1)
    assert mean.weights == pytest.approx(np.diag(1 / np.array([4.0, 5.0, 9.0])))
    ridge = math.sqrt(0.5) * 0.9 * math.sqrt(3 * math.log(18 / 0.05))  # σ_V/√2 stands off the diagonal
    adassp = solve_adassp(V, U, 0.9)
    assert adassp.weights == pytest.approx(np.diag(1 / (np.array([1.0, 2.0, 6.0]) + ridge - 1)))
    negative = solve_adassp(np.diag([-1.0, 2.0, 6.0]), U, 0.9)
    assert negative.eigenvalues == pytest.approx(np.array([-1.0, 2.0, 6.0]) + ridge)
    assert np.isfinite(solve_mean_ridge(np.diag([-1.0, 1.0, 3.0]), U, 0.1).weights).all()


def test_what_cannot_be_solved_is_refused() -> None:
    V, U = np.eye(3), np.ones((3, 2))
    rules: Any = RULES
    for rule in rules:
        for deviation in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(CalibrationError, match="solve_ffc is for exact sums"):
                rule(V, U, deviation)
        with pytest.raises(NonFinite):
            rule(V, U * math.nan, 1.0)
        for wrong in ((V[:2], U), (V, U[:2]), (V, U[:, 0])):
            with pytest.raises(ShapeMismatch, match=r"V is \(l, l\) and U \(l, C\)"):
                rule(*wrong, 1.0)
