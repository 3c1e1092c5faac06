import copy
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.calibration.records import clouds, ffc, members_of, pooled, total_of
from veilsum.calibration import CalibrationError, FFCStatistics, solve_ffc
from veilsum.calibration.errors import (
    ConfigMismatch,
    LabelOutOfRange,
    LayoutMismatch,
    NonFinite,
    NotUnitNorm,
    ShapeMismatch,
    SumCheckFailed,
    WrongDtype,
    ZeroRow,
)
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.layout import ffc_layout


def explicit(rows: Any, labels: Any, classes: int) -> tuple[Any, Any]:
    """Compute V and U as sums of outer products, exactly as in SphereFed, eq. 9."""
    V = sum(np.outer(z, z) for z in rows)
    U = sum(np.outer(z, np.eye(classes)[y]) for z, y in zip(rows, labels, strict=True))
    return V, U


def test_no_sum_is_in_its_representation() -> None:
    rows, labels = clouds(200, 16, 5)
    words = repr(ffc(rows, labels, 5))
    assert "200 records" in words
    assert "array" not in words


@pytest.mark.parametrize("constant", [False, True])
def test_statistics_are_sums_of_outer_products(*, constant: bool) -> None:
    rows, labels = clouds(200, 16, 5)
    statistics = ffc(rows, labels, 5, constant=constant)
    solved = np.column_stack([3 * rows, np.ones(200)]) / np.sqrt(10) if constant else rows
    V, U = explicit(solved, labels, 5)
    np.testing.assert_allclose(statistics.V, V, atol=1e-12)
    np.testing.assert_allclose(statistics.U, U, atol=1e-12)
    assert statistics.counts.tolist() == np.bincount(labels, minlength=5).tolist()
    assert statistics.records == 200
    assert (statistics.V == statistics.V.T).all()
    assert statistics.layout == ffc_layout(16, 5, constant=constant)
    assert not any(each.flags.writeable for each in (statistics.V, statistics.U, statistics.counts))


@pytest.mark.parametrize("constant", [False, True])
def test_unit_rows_are_added_as_update_adds_them(*, constant: bool) -> None:
    rows, labels = clouds(60, 8, 3)
    unit, found = rows / np.linalg.norm(rows, axis=1)[:, None], FFCStatistics(8, 3, constant=constant)
    for part in (slice(0, 25), slice(25, 60)):
        found.add(unit[part], labels[part])
    plain = ffc(rows, labels, 3, constant=constant)
    np.testing.assert_allclose(found.V, plain.V, atol=1e-12)
    np.testing.assert_allclose(found.U, plain.U, atol=1e-12)
    assert (found.counts == plain.counts).all()


@pytest.mark.parametrize(("dim", "constant"), [(300, False), (256, True)])
def test_the_vector_of_one_batch_is_that_of_its_sums(*, dim: int, constant: bool) -> None:
    rows, labels = clouds(40, dim, 3)
    lattice, statistics = SumsLattice(31), ffc(rows, labels, 3, constant=constant)
    by_strips = statistics.vector(lattice)
    blocks = {"V": statistics.V, "U": statistics.U, "n": statistics.counts.astype(np.float64)}
    assert (statistics.vector(lattice) == lattice.encode(statistics.layout.flatten(blocks), bound=40)).all()
    assert np.abs(by_strips - statistics.vector(lattice)).max() <= 1
    statistics.update(rows, labels)
    twice = ffc(np.vstack([rows, rows]), np.concatenate([labels, labels]), 3, constant=constant)
    np.testing.assert_allclose(statistics.V, twice.V, atol=1e-12)


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), max_size=4), constant=st.booleans())
@settings(deadline=None, max_examples=40)
def test_batches_merges_and_sums_are_concatenation(*, seed: int, cuts: list[int], constant: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((40, 5)), rng.integers(0, 3, 40)
    whole = ffc(rows, labels, 3, normalise=True, constant=constant)
    streamed, merged = (FFCStatistics(5, 3, normalise=True, constant=constant) for _ in range(2))
    for part in zip(np.split(rows, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True):
        streamed.update(*part)
        merged.merge(ffc(*part, 3, normalise=True, constant=constant))
    for total in (streamed, merged, FFCStatistics(5, 3, constant=constant) + whole):
        np.testing.assert_allclose(total.V, whole.V, atol=1e-12)
        np.testing.assert_allclose(total.U, whole.U, atol=1e-12)
        assert (total.counts == whole.counts).all()
    assert (whole + whole).records == 2 * whole.records == 80


@pytest.mark.parametrize(
    ("dim", "classes", "constant"), [(5, 3, False), (5, 3, True), (4, 2, True), (4, 3, False)]
)
def test_statistics_of_other_settings_do_not_add(*, dim: int, classes: int, constant: bool) -> None:
    statistics = ffc(*clouds(20, 4, 3), 3, constant=True)
    before = copy.deepcopy(statistics)
    other = FFCStatistics(dim, classes, constant=constant)
    for add in (statistics.merge, statistics.__add__):
        with pytest.raises(ConfigMismatch):
            add(other)
    assert np.array_equal(statistics.V, before.V)


def test_memory_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    records = rng.standard_normal((50, 8)), rng.integers(0, 4, 50)
    whole = ffc(*records, 4, normalise=True)
    monkeypatch.setattr("veilsum.calibration.rows.ROW_BLOCK_ELEMENTS", 24)
    np.testing.assert_allclose(ffc(*records, 4, normalise=True).V, whole.V, atol=1e-13)
    rows = np.eye(4)[np.arange(20) % 4].copy()
    rows[17] = np.nan
    statistics = FFCStatistics(4, 2)
    with pytest.raises(NonFinite, match="rows 17"):
        statistics.update(rows, np.zeros(20, np.int64))
    assert statistics.records == 0
    assert not statistics.V.any()


def test_views_strides_lengths_and_read_only_arrays() -> None:
    rows, labels = clouds(60, 8, 3)
    expected = ffc(rows[::2], labels[::2], 3)
    wide = np.zeros((60, 16))
    wide[:, ::2] = rows
    wide.flags.writeable = labels.flags.writeable = False
    lengths = 10.0 ** np.linspace(-200, 200, 30)[:, None]
    for statistics in (
        ffc(wide[::2, ::2], labels[::2], 3),
        ffc(rows[::2] * lengths, labels[::2], 3, normalise=True),
    ):
        np.testing.assert_allclose(statistics.V, expected.V, atol=1e-13)
        np.testing.assert_allclose(statistics.U, expected.U, atol=1e-13)
    assert (wide[:, ::2] == rows).all()


def put(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


BAD_BATCHES: list[tuple[Callable[[Any, Any], tuple[Any, Any]], type[CalibrationError]]] = [
    (lambda z, y: (put(z, (3, 1), np.nan), y), NonFinite),
    (lambda z, y: (put(z, (3, 1), -np.inf), y), NonFinite),
    (lambda z, y: (put(z, 3, 0), y), ZeroRow),
    (lambda z, y: (put(z, 3, 2 * z[3]), y), NotUnitNorm),
    (lambda z, y: (put(z, (3, 1), 1e308), y), NotUnitNorm),
    (lambda z, y: (z, put(y, 3, -1)), LabelOutOfRange),
    (lambda z, y: (z, put(y, 3, 4)), LabelOutOfRange),
    (lambda z, y: (z, y.astype(float)), WrongDtype),
    (lambda z, y: (z, None), WrongDtype),
    (lambda z, y: (z, y[:, None]), ShapeMismatch),
    (lambda z, y: (z, y[:-1]), ShapeMismatch),
    (lambda z, y: (z[:, :-1], y), ShapeMismatch),
    (lambda z, y: (z.astype(complex), y), WrongDtype),
]


@pytest.mark.parametrize(("damage", "error"), BAD_BATCHES)
def test_a_refused_batch_adds_nothing(
    damage: Callable[[Any, Any], tuple[Any, Any]], error: type[CalibrationError]
) -> None:
    rows, labels = clouds(5, 4, 4)
    statistics = ffc(rows, labels, 4)
    before = copy.deepcopy(statistics)
    with pytest.raises(error):
        statistics.update(*damage(rows, labels))
    for statistic in ("V", "U", "counts"):
        assert np.array_equal(getattr(statistics, statistic), getattr(before, statistic))


@given(
    features=hnp.arrays(np.float32, (3, 2), elements=st.floats(width=32)),
    dtype=st.sampled_from(["i8", "u1", "f8", "?"]),
    shape=st.sampled_from([(3,), (3, 1), (2,)]),
    data=st.data(),
)
@settings(deadline=None, max_examples=100)
def test_garbage_is_refused_or_summed_soundly(
    features: Any, dtype: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    statistics = FFCStatistics(2, 2, normalise=True)
    try:
        statistics.update(features, data.draw(hnp.arrays(np.dtype(dtype), shape)))
    except CalibrationError:
        assert statistics.records == 0
    else:
        assert np.trace(statistics.V) == pytest.approx(3)


def test_no_encoded_entry_exceeds_the_bound_by_float_dust() -> None:
    statistics = FFCStatistics(2, 1, normalise=True)
    rng = np.random.default_rng(0)
    for _ in range(50):
        statistics.update(np.outer(rng.uniform(0.1, 9, 97), [0.3, 0.0]), np.zeros(97, np.int64))
    statistics._square_sums[0, 0] = np.nextafter(statistics.records, np.inf)
    assert statistics.vector(SumsLattice(40)).max() == statistics.records * 2**40


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("lattice", [SumsLattice(31), SumsLattice(15)])
def test_pooled_sums_decode_to_the_pooled_statistics(*, lattice: SumsLattice, constant: bool) -> None:
    rows, labels = clouds(300, 12, 4)
    members, plain = (
        members_of(rows, labels, 4, 6, constant=constant),
        ffc(rows, labels, 4, constant=constant),
    )
    found = pooled(members, lattice)
    error = 3 / lattice.unit() + 1e-12
    assert np.abs(found.V - plain.V).max() <= error
    assert np.abs(found.U - plain.U).max() <= error
    assert (found.counts == plain.counts).all()
    assert found.rounding_deviation == pytest.approx((6 / 12) ** 0.5 / lattice.unit())
    assert (found + found).rounding_deviation == pytest.approx(2**0.5 * found.rounding_deviation)
    total = total_of(members, lattice)
    cautious = plain.from_sums(lattice, total)
    assert cautious.rounding_deviation >= found.rounding_deviation


def test_vectors_and_blocks_that_are_no_sums_are_refused() -> None:
    lattice, empty = SumsLattice(4), FFCStatistics(2, 2)
    good = np.zeros(empty.layout.elements, np.int64)
    assert empty.from_sums(lattice, good).records == 0
    wrong: list[tuple[Any, type[Exception]]] = [
        (good[:-1], LayoutMismatch),
        (good.astype(np.uint64), WrongDtype),
        (put(good, -1, -16), SumCheckFailed),
        (put(good, -1, 7), SumCheckFailed),
    ]
    for vector, error in wrong:
        with pytest.raises(error):
            empty.from_sums(lattice, vector)
    V, U, counts = np.eye(3), np.ones((3, 2)), np.ones(2, np.int64)
    for blocks in ((V[:2], U, counts), (V, U[:2], counts), (V, U, counts[:1]), (V, U[:, 0], counts)):
        with pytest.raises(ShapeMismatch):
            FFCStatistics.from_blocks(*blocks, constant=False)


def test_afl_s_merge_law_is_these_sums_in_disguise() -> None:
    """Members send W_k = (V_k + γI)⁻¹U_k and C_k = V_k + γI (AFL: Zhuang et al. 2025); K·γ is removed last."""
    rows, labels = clouds(400, 10, 4)
    gamma, pool = 0.7, ffc(rows, labels, 4)
    merged_W, merged_C = np.zeros((10, 4)), np.zeros((10, 10))
    for k, member in enumerate(members_of(rows, labels, 4, 5)):
        W, C = solve_ffc(member, gamma).weights, member.V + gamma * np.eye(10)
        if k == 0:
            merged_W, merged_C = W, C
            continue
        R_u, R_v, both = np.linalg.inv(merged_C), np.linalg.inv(C), np.linalg.inv(merged_C + C)
        of_u = np.eye(10) - R_u @ C + R_u @ C @ both @ C
        of_v = np.eye(10) - R_v @ merged_C + R_v @ merged_C @ both @ merged_C
        merged_W, merged_C = of_u @ merged_W + of_v @ W, merged_C + C
    np.testing.assert_allclose(merged_W, solve_ffc(pool, 5 * gamma).weights, atol=1e-10)
    np.testing.assert_allclose(merged_C, pool.V + 5 * gamma * np.eye(10), atol=1e-10)
    freed = np.linalg.solve(merged_C - 5 * gamma * np.eye(10), merged_C @ merged_W)
    np.testing.assert_allclose(freed, solve_ffc(pool, 0).weights, atol=1e-9)


def test_fedcof_s_estimate_of_v_follows_from_sums_of_its_size() -> None:
    """Σ_c (n_c − 1)Σ̂_c + n_c μ_cμ_cᵀ, with Σ̂_c the scatter of the members' means over K_c − 1 (FedCOF: Goswami et al. 2025)."""
    rows, labels = clouds(400, 10, 4)
    members, pool = members_of(rows, labels, 4, 5), ffc(rows, labels, 4)
    counts, means = pool.counts, pool.U / pool.counts
    holders = np.sum([member.counts > 0 for member in members], axis=0)
    share = (counts - 1) / (holders - 1)
    estimate = (means * counts) @ means.T
    for member in members:
        apart = member.U / member.counts - means
        estimate += (apart * member.counts * share) @ apart.T
    summed = sum((member.U / member.counts * share) @ member.U.T for member in members)
    np.testing.assert_allclose(summed + (means * counts * (1 - share)) @ means.T, estimate, atol=1e-10)
