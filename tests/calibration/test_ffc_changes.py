"""Members, records and classes that come and go; and a merge law that is these sums in disguise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import (
    ConfigMismatch,
    FFCStatistics,
    SumCheckFailed,
    SumsLattice,
    solve_ffc,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


def test_what_was_removed_was_never_there(clouds: Any, pool: Any) -> None:
    rows, labels = clouds(200, 6, 3)
    lattice = SumsLattice(31)
    members = [statistics_of(rows[i::4], labels[i::4], 3) for i in range(4)]
    layout = members[0].layout
    total = FFCStatistics.from_sums(layout, lattice, pool(members, lattice), bias=False, members=4)
    # A later round in which the last member alone has something to take back: its sums, negated.
    gone = members[3].vector(lattice)
    rest = FFCStatistics.from_sums(layout, lattice, pool(members, lattice) - gone, bias=False, members=3)
    never = FFCStatistics.from_sums(layout, lattice, pool(members[:3], lattice), bias=False, members=3)
    assert (rest.vector(lattice) == never.vector(lattice)).all()
    removed = FFCStatistics(6, 3)
    removed.update(rows[3::4], labels[3::4])
    total.remove(removed)
    np.testing.assert_allclose(total.V, never.V, rtol=0, atol=1e-8)
    assert (total.counts == never.counts).all()
    assert solve_ffc(total, 0.3).weights == pytest.approx(solve_ffc(never, 0.3).weights, abs=1e-8)


def test_what_can_not_be_removed(clouds: Any) -> None:
    rows, labels = clouds(20, 4, 2)
    with pytest.raises(ConfigMismatch, match="classes is 2 here and 3"):
        statistics_of(rows, labels, 2).remove(FFCStatistics(4, 3))
    with pytest.raises(SumCheckFailed, match="would be left with -") as caught:
        statistics_of(rows[:5], labels[:5], 2).remove(statistics_of(rows, labels, 2))
    assert caught.value.identity == "counts"


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
