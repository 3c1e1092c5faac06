from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FFCStatistics,
    LabelOutOfRange,
    LayoutMismatch,
    NonFinite,
    NotUnitNorm,
    ShapeMismatch,
    SumCheckFailed,
    SumsLattice,
    WrongDtype,
    ZeroRow,
    ffc_layout,
)


def explicit(rows: Any, labels: Any, classes: int) -> tuple[Any, Any]:
    """V and U as sums of outer products, SphereFed eq. 9 word for word."""
    V = sum(np.outer(z, z) for z in rows)
    U = sum(np.outer(z, np.eye(classes)[y]) for z, y in zip(rows, labels, strict=True))
    return V, U


def test_statistics_are_sums_of_outer_products(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(200, 16, 5)
    statistics = FFCStatistics(16, 5)
    statistics.update(rows, labels)
    V, U = explicit(rows, labels, 5)
    np.testing.assert_allclose(statistics.V, V, atol=1e-12)
    np.testing.assert_allclose(statistics.U, U, atol=1e-12)
    assert statistics.counts.tolist() == np.bincount(labels, minlength=5).tolist()
    assert statistics.records == 200
    assert (statistics.V == statistics.V.T).all()


def test_a_bias_is_a_last_column_of_one_over_root_two(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(50, 6, 3)
    statistics = FFCStatistics(6, 3, bias=True)
    statistics.update(rows, labels)
    V, U = explicit(np.column_stack([rows, np.ones(50)]) / np.sqrt(2), labels, 3)
    np.testing.assert_allclose(statistics.V, V, atol=1e-13)
    np.testing.assert_allclose(statistics.U, U, atol=1e-13)
    assert statistics.V[-1, -1] == pytest.approx(25)
    assert statistics.layout == ffc_layout(6, 3, bias=True)


@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    bias=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_batches_and_merges_are_concatenation(*, seed: int, cuts: list[int], bias: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((40, 5)), rng.integers(0, 3, 40)
    whole, streamed, merged = (FFCStatistics(5, 3, normalise=True, bias=bias) for _ in range(3))
    whole.update(rows, labels)
    for part_rows, part_labels in zip(
        np.split(rows, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True
    ):
        streamed.update(part_rows, part_labels)
        member = FFCStatistics(5, 3, normalise=True, bias=bias)
        member.update(part_rows, part_labels)
        merged.merge(member)
    for total in (streamed, merged):
        np.testing.assert_allclose(total.V, whole.V, atol=1e-12)
        np.testing.assert_allclose(total.U, whole.U, atol=1e-12)
        assert (total.counts == whole.counts).all()


def test_addition_leaves_its_operands_alone() -> None:
    one = FFCStatistics(2, 2)
    one.update(np.eye(2), np.array([0, 1]))
    assert (one + one).records == 4
    assert one.records == 2


def test_memory_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((50, 8)), rng.integers(0, 4, 50)
    whole, blocked = (FFCStatistics(8, 4, normalise=True) for _ in range(2))
    whole.update(rows, labels)
    monkeypatch.setattr("calibration.rows.BLOCK_ELEMENTS", 24)
    blocked.update(rows, labels)
    np.testing.assert_allclose(blocked.V, whole.V, atol=1e-13)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, np.asfortranarray])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 1e-5), ("float16", 3e-2)])
def test_any_width_container_and_order(
    clouds: Callable[..., Any], make: Callable[[Any], Any], dtype: str, tolerance: float
) -> None:
    rows, labels = clouds(100, 32, 4)
    statistics = FFCStatistics(32, 4)
    statistics.update(make(rows.astype(dtype)), make(labels.astype(np.int32)))
    V, U = explicit(rows, labels, 4)
    np.testing.assert_allclose(statistics.V, V, atol=tolerance)
    np.testing.assert_allclose(statistics.U, U, atol=tolerance)
    assert np.trace(statistics.V) == pytest.approx(100, abs=1e-11), "rows have length 1 whatever they came as"


def test_views_strides_and_read_only_arrays(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(60, 8, 3)
    expected = FFCStatistics(8, 3)
    expected.update(rows[::2], labels[::2])
    wide = np.zeros((60, 16))
    wide[:, ::2] = rows
    wide.flags.writeable = labels.flags.writeable = False
    statistics = FFCStatistics(8, 3)
    statistics.update(wide[::2, ::2], labels[::2])
    np.testing.assert_allclose(statistics.V, expected.V, atol=1e-13)
    np.testing.assert_allclose(statistics.U, expected.U, atol=1e-13)
    assert (wide[:, ::2] == rows).all()


def test_normalise_takes_rows_of_any_length(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(30, 4, 2)
    lengths = 10.0 ** np.linspace(-200, 200, 30)[:, None]
    statistics, expected = FFCStatistics(4, 2, normalise=True), FFCStatistics(4, 2)
    statistics.update(rows * lengths, labels)
    expected.update(rows, labels)
    np.testing.assert_allclose(statistics.V, expected.V, atol=1e-13)


def put(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


BAD_BATCHES: list[tuple[Callable[[Any, Any], tuple[Any, Any]], type[CalibrationError], str]] = [
    (lambda z, y: (put(z, (3, 1), np.nan), y), NonFinite, "rows 3 hold NaN"),
    (lambda z, y: (put(z, (3, 1), -np.inf), y), NonFinite, "rows 3 hold NaN"),
    (lambda z, y: (put(z, 3, 0), y), ZeroRow, "rows 3 are zero"),
    (lambda z, y: (put(z, 3, 2 * z[3]), y), NotUnitNorm, "pass normalise=True"),
    (lambda z, y: (put(z, (3, 1), 1e308), y), NotUnitNorm, "norm 1e\\+308"),
    (lambda z, y: (z, put(y, 3, -1)), LabelOutOfRange, "-1 in row 3"),
    (lambda z, y: (z, put(y, 3, 4)), LabelOutOfRange, "4 in row 3"),
    (lambda z, y: (z, y.astype(float)), WrongDtype, "integers"),
    (lambda z, y: (z, None), WrongDtype, "integers"),
    (lambda z, y: (z, y[:, None]), ShapeMismatch, "ravel"),
    (lambda z, y: (z, y[:-1]), ShapeMismatch, "labels have shape"),
    (lambda z, y: (z[:, :-1], y), ShapeMismatch, "one row a record"),
    (lambda z, y: (z.astype(int), y), WrongDtype, "float32"),
]


@pytest.mark.parametrize(("damage", "error", "hint"), BAD_BATCHES)
def test_a_refused_batch_leaves_no_trace(
    damage: Callable[[Any, Any], tuple[Any, Any]],
    error: type[CalibrationError],
    hint: str,
    clouds: Callable[..., Any],
) -> None:
    rows, labels = clouds(5, 4, 4)
    statistics = FFCStatistics(4, 4)
    statistics.update(rows, labels)
    before = copy.deepcopy(statistics)
    with pytest.raises(error, match=hint):
        statistics.update(*damage(rows, labels))
    for statistic in ("V", "U", "counts"):
        assert np.array_equal(getattr(statistics, statistic), getattr(before, statistic))


def test_a_bad_row_in_a_late_block_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.rows.BLOCK_ELEMENTS", 8)
    rows = np.eye(4)[np.arange(20) % 4].copy()
    rows[17] = np.nan
    statistics = FFCStatistics(4, 2)
    with pytest.raises(NonFinite, match="rows 17"):
        statistics.update(rows, np.zeros(20, np.int64))
    assert statistics.records == 0
    assert not statistics.V.any()


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
    labels = data.draw(hnp.arrays(np.dtype(dtype), shape))
    statistics = FFCStatistics(2, 2, normalise=True)
    try:
        statistics.update(features, labels)
    except CalibrationError:
        assert statistics.records == 0
    else:
        assert np.trace(statistics.V) == pytest.approx(3)


def test_empty_batches_one_class_and_one_dimension() -> None:
    statistics = FFCStatistics(1, 1)
    nothing: list[Any] = [np.empty(0, np.int64), [], torch.empty(0)]
    for none in nothing:
        statistics.update(np.empty((0, 1)), none)
    assert statistics.records == 0
    statistics.update(np.array([[-1.0], [1.0]]), [0, 0])
    assert statistics.V.tolist() == [[2.0]]
    assert statistics.U.tolist() == [[0.0]]
    assert repr(statistics) == "<FFCStatistics 2 records, dim 1, classes 1, bias False>"


def test_what_is_read_can_not_be_written() -> None:
    statistics = FFCStatistics(2, 2)
    for array in (statistics.V, statistics.U, statistics.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("dim", 4),
        ("classes", 4),
        ("bias", True),
    ],
)
def test_only_like_statistics_merge(setting: str, value: Any) -> None:
    settings: dict[str, Any] = {"dim": 3, "classes": 3} | {setting: value}
    with pytest.raises(ConfigMismatch, match=f"{setting} is .* under the same settings"):
        FFCStatistics(3, 3).merge(FFCStatistics(**settings))


@pytest.mark.parametrize(("dim", "classes"), [(0, 1), (1, 0), (-1, 2), (2.0, 2), (2, True)])
def test_sizes_are_whole_numbers_from_one(dim: Any, classes: Any) -> None:
    for bias in (False, True):
        with pytest.raises(LayoutMismatch, match="whole numbers from 1"):
            FFCStatistics(dim, classes, bias=bias)


def test_sizes_may_come_from_numpy() -> None:
    sizes: Any = (np.int64(3), np.uint8(2))
    statistics = FFCStatistics(*sizes)
    assert statistics.layout == ffc_layout(3, 2)
    assert type(statistics.dim) is type(statistics.classes) is int


def test_no_encoded_entry_exceeds_the_bound_by_float_dust() -> None:
    statistics = FFCStatistics(2, 1, normalise=True)
    rng = np.random.default_rng(0)
    for _ in range(50):
        statistics.update(np.outer(rng.uniform(0.1, 9, 97), [0.3, 0.0]), np.zeros(97, np.int64))
    statistics._V[0, 0] = np.nextafter(statistics.records, np.inf)
    assert statistics.vector(SumsLattice(40)).max() == statistics.records * 2**40


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lattice", [SumsLattice(31), SumsLattice(15)])
def test_pooled_sums_decode_to_the_pooled_statistics(
    *,
    clouds: Callable[..., Any],
    pool: Callable[..., Any],
    lattice: SumsLattice,
    bias: bool,
) -> None:
    rows, labels = clouds(300, 12, 4)
    members = [FFCStatistics(12, 4, bias=bias) for _ in range(6)]
    for index, member in enumerate(members):
        member.update(rows[index::6], labels[index::6])
    plain = sum(members[1:], members[0])
    layout = ffc_layout(12, 4, bias=bias)
    pooled = FFCStatistics.from_sums(layout, lattice, pool(members, lattice), bias=bias, members=6)
    error = 3 / lattice.unit() + 1e-12
    assert np.abs(pooled.V - plain.V).max() <= error
    assert np.abs(pooled.U - plain.U).max() <= error
    assert (pooled.counts == plain.counts).all()
    assert pooled.rounding_deviation == pytest.approx((6 / 12) ** 0.5 / lattice.unit())
    twice = pooled + pooled
    assert twice.records == 600
    assert twice.rounding_deviation == pytest.approx(2**0.5 * pooled.rounding_deviation)
    cautious = FFCStatistics.from_sums(layout, lattice, pool(members, lattice), bias=bias)
    assert cautious.rounding_deviation >= pooled.rounding_deviation


def test_vectors_that_are_no_sums_are_refused() -> None:
    lattice, layout = SumsLattice(4), ffc_layout(2, 2)
    good = np.zeros(layout.elements, np.int64)
    assert FFCStatistics.from_sums(layout, lattice, good, bias=False).records == 0
    with pytest.raises(LayoutMismatch, match="vector"):
        FFCStatistics.from_sums(layout, lattice, good[:-1], bias=False)
    unsigned: Any = good.astype(np.uint64)
    with pytest.raises(WrongDtype, match="centred lift"):
        FFCStatistics.from_sums(layout, lattice, unsigned, bias=False)
    for value in (-16, 7):
        with pytest.raises(SumCheckFailed, match="class 1 has") as caught:
            FFCStatistics.from_sums(layout, lattice, put(good, -1, value), bias=False)
        assert caught.value.identity == "counts"
