"""Weighted classes; members, records and classes that come and go; and a merge law that is these sums in disguise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FeaturesLattice,
    FFCStatistics,
    LatticeMismatch,
    NoRecords,
    SumCheckFailed,
    SumsLattice,
    balanced_weights,
    check_sums,
    solve_ffc,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, track_records=False, **settings)
    statistics.update(rows, labels)
    return statistics


@pytest.mark.parametrize("bias", [False, True])
def test_weighted_classes_are_ridge_with_sample_weights(*, clouds: Any, pool: Any, bias: bool) -> None:
    rows, labels = clouds(300, 8, 4)
    labels = np.minimum(labels, np.arange(300) % 4)  # uneven
    counts = np.bincount(labels, minlength=5)
    weights = balanced_weights(counts)
    assert max(weights) == 1
    assert np.ptp((np.array(weights) * counts)[:4]) < 1e-12
    X = np.column_stack([rows, np.ones(300)]) / np.sqrt(2) if bias else rows
    share = np.array(weights)[labels]
    theirs = Ridge(alpha=0.3, fit_intercept=False, solver="svd").fit(
        X, np.eye(5)[labels], sample_weight=share
    )
    plain = statistics_of(rows, labels, 5, bias=bias, class_weights=weights)
    solution = solve_ffc(plain, 0.3)
    np.testing.assert_allclose(solution.raw_weights, theirs.coef_.T, atol=1e-11)
    assert solution.rss == pytest.approx(
        (share[:, None] * (np.eye(5)[labels] - theirs.predict(X)) ** 2).sum()
    )
    assert plain.mass == pytest.approx(share.sum())
    assert plain.records == solution.records == 300
    assert solution.empty_classes == (4,)

    lattice = SumsLattice(31)
    members = [statistics_of(rows[i::3], labels[i::3], 5, bias=bias, class_weights=weights) for i in range(3)]
    pooled = FFCStatistics.from_sums(
        plain.layout, lattice, pool(members, lattice), bias=bias, members=3, class_weights=weights
    )
    np.testing.assert_allclose(pooled.V, plain.V, rtol=0, atol=3 / 2 * 2.0**-31)
    np.testing.assert_allclose(pooled.U, plain.U, rtol=0, atol=3 / 2 * 2.0**-31)
    total = pool(members, lattice)
    check_sums(plain.layout, lattice, total, members=3, bias=bias, class_weights=weights)
    with pytest.raises(SumCheckFailed) as caught:
        check_sums(plain.layout, lattice, total, members=3, bias=bias)
    assert caught.value.identity == ("bias" if bias else "trace")
    with pytest.raises(SumCheckFailed) as caught:
        check_sums(plain.layout, lattice, total, members=3, bias=bias, class_weights=[*weights[:3], 0.1, 1.0])
    assert caught.value.identity == "class mass"
    assert pooled.mass == pytest.approx(plain.mass)
    assert solve_ffc(pooled).ridge == pytest.approx(solve_ffc(plain).ridge)


def test_balance_lifts_the_rare_class_of_real_digits() -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    kept = np.flatnonzero((labels[:1200] != 8) | (np.arange(1200) % 16 == 0))
    plain = statistics_of(rows[kept], labels[kept], 10, bias=True)
    balanced = statistics_of(
        rows[kept], labels[kept], 10, bias=True, class_weights=balanced_weights(plain.counts)
    )
    eights = labels[1200:] == 8
    found = [(solve_ffc(s).predict(rows[1200:])[eights] == 8).mean() for s in (plain, balanced)]
    assert found[1] > found[0] + 0.3


def test_weights_that_are_none() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, 2.0], [1.0, np.nan]):
        with pytest.raises(CalibrationError, match="2 numbers above 0 and up to 1"):
            FFCStatistics(3, 2, class_weights=weights)
    with pytest.raises(LatticeMismatch, match="not whole numbers"):
        FFCStatistics(3, 2, class_weights=[1, 1], lattice=FeaturesLattice(12))
    with pytest.raises(NoRecords, match="sum the counts"):
        balanced_weights([0, 0])
    with pytest.raises(ConfigMismatch, match="class_weights"):
        FFCStatistics(3, 2).merge(FFCStatistics(3, 2, class_weights=[1, 1]))


@pytest.mark.parametrize("lattice", [SumsLattice(31), FeaturesLattice(12)])
def test_what_was_removed_was_never_there(*, clouds: Any, pool: Any, lattice: Any) -> None:
    rows, labels = clouds(200, 6, 3)
    own = lattice if isinstance(lattice, FeaturesLattice) else None
    members = [statistics_of(rows[i::4], labels[i::4], 3, lattice=own) for i in range(4)]
    layout = members[0].layout
    total = FFCStatistics.from_sums(layout, lattice, pool(members, lattice), bias=False, members=4)
    # A later round in which the last member alone has something to take back: its sums, negated.
    gone = members[3].vector(lattice)
    rest = FFCStatistics.from_sums(layout, lattice, pool(members, lattice) - gone, bias=False, members=3)
    never = FFCStatistics.from_sums(layout, lattice, pool(members[:3], lattice), bias=False, members=3)
    assert (rest.vector(lattice) == never.vector(lattice)).all()
    removed = FFCStatistics(6, 3, lattice=own)  # it may name its records
    removed.update(rows[3::4], labels[3::4])
    total.remove(removed)
    np.testing.assert_allclose(total.V, never.V, rtol=0, atol=0 if own else 1e-8)
    assert (total.counts == never.counts).all()
    assert solve_ffc(total, 0.3).weights == pytest.approx(solve_ffc(never, 0.3).weights, abs=1e-8)


def test_what_can_not_be_removed(clouds: Any) -> None:
    rows, labels = clouds(20, 4, 2)
    tracked = FFCStatistics(4, 2)
    with pytest.raises(ConfigMismatch, match="only grow"):
        tracked.remove(FFCStatistics(4, 2))
    with pytest.raises(ConfigMismatch, match="classes is 2 here and 3"):
        statistics_of(rows, labels, 2).remove(FFCStatistics(4, 3))
    with pytest.raises(SumCheckFailed, match="would be left with -") as caught:
        statistics_of(rows[:5], labels[:5], 2).remove(statistics_of(rows, labels, 2))
    assert caught.value.identity == "counts"


@pytest.mark.parametrize("lattice", [None, FeaturesLattice(12)])
def test_a_class_that_comes_later_is_as_if_it_always_was(*, clouds: Any, lattice: Any) -> None:
    rows, labels = clouds(200, 6, 4)
    early = labels < 3
    first = FFCStatistics(6, 3, bias=True, lattice=lattice, withheld=[1])
    first.update(rows[early], labels[early])
    first.add_classes(4)
    second = FFCStatistics(6, 4, bias=True, lattice=lattice, withheld=[1])
    second.update(rows[~early], labels[~early])
    first.merge(second)
    whole = FFCStatistics(6, 4, bias=True, lattice=lattice, withheld=[1])
    whole.update(rows, labels)
    np.testing.assert_allclose(first.V, whole.V, atol=1e-12)
    np.testing.assert_allclose(first.U, whole.U, atol=1e-12)
    assert first.counts.tolist() == whole.counts.tolist()
    assert first.records_digest == whole.records_digest
    assert first.layout == whole.layout
    assert first.indicator().holds.tolist() == [1, 1, 1, 1]
    first.update(rows, labels)
    assert first.records == 2 * whole.records


def test_classes_do_not_go() -> None:
    with pytest.raises(ConfigMismatch, match="do not become 2"):
        FFCStatistics(4, 3).add_classes(2)
    with pytest.raises(ConfigMismatch, match="if none is weighted"):
        FFCStatistics(4, 2, class_weights=[1, 1]).add_classes(3)


def test_afl_s_merge_law_is_these_sums_in_disguise(clouds: Any) -> None:
    """Members send W_k = (V_k + γI)⁻¹U_k and C_k = V_k + γI (AFL: Zhuang et al. 2025); K·γ is removed last."""
    rows, labels = clouds(400, 10, 4)
    gamma, members = 0.7, [statistics_of(rows[i::5], labels[i::5], 4) for i in range(5)]
    merged_W, merged_C = np.zeros((10, 4)), np.zeros((10, 10))
    for k, member in enumerate(members):
        W, C = solve_ffc(member, gamma).weights, member.V + gamma * np.eye(10)
        if k == 0:
            merged_W, merged_C = W, C
            continue
        R_u, R_v, both = np.linalg.inv(merged_C), np.linalg.inv(C), np.linalg.inv(merged_C + C)
        of_u = np.eye(10) - R_u @ C + R_u @ C @ both @ C
        of_v = np.eye(10) - R_v @ merged_C + R_v @ merged_C @ both @ merged_C
        merged_W, merged_C = of_u @ merged_W + of_v @ W, merged_C + C
    pooled = sum(members[1:], members[0])
    np.testing.assert_allclose(merged_W, solve_ffc(pooled, 5 * gamma).weights, atol=1e-10)
    np.testing.assert_allclose(merged_C, pooled.V + 5 * gamma * np.eye(10), atol=1e-10)
    freed = np.linalg.solve(merged_C - 5 * gamma * np.eye(10), merged_C @ merged_W)
    np.testing.assert_allclose(freed, solve_ffc(pooled, 0).weights, atol=1e-9)
