from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.study.specs import fields_of, noisy, spec_of
from veilsum.calibration import CCVRStatistics, FFCStatistics, solve_ffc
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.study.answers import read_pooled
from veilsum.study.vectors import compute_vector, make_accumulator, noiseless_vector, rows_bear_sum

LINEAR_AND_KERNEL: list[dict[str, Any]] = [
    {"kind": "ffc", "constant": True},
    {"kind": "random-features", "size": 8, "bandwidth": 0.7},
]
CCVR: list[dict[str, Any]] = [{"kind": "ccvr"}]
both = pytest.mark.parametrize("statistics", [LINEAR_AND_KERNEL, CCVR], ids=["ffc", "ccvr"])


def asked(step: str = "sum", *, withheld: tuple[int, ...] = (), **more: Any) -> Any:
    """Make a step of a question over 4 features and 3 classes."""
    return spec_of(step, withheld=withheld, **{"dim": 4, "classes": ["a", "b", "c"], **more})


def member(seed: int, rows: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 4)).astype(np.float32), rng.integers(0, 3, rows)


def test_the_sum_of_vectors_is_the_pooled_statistics() -> None:
    spec = asked(**fields_of(*LINEAR_AND_KERNEL))
    members = [member(seed) for seed in range(12)]
    total = np.sum([compute_vector(spec, *each) for each in members], axis=0)
    features, labels = (np.concatenate(parts) for parts in zip(*members, strict=True))
    found: Any = read_pooled(spec, total, 12)
    assert list(found) == ["ffc", "random-features"]
    plain = FFCStatistics(4, 3, constant=True, normalise=True)
    plain.update(features, labels)
    ffc = found["ffc"]
    assert isinstance(ffc, FFCStatistics)
    np.testing.assert_allclose(ffc.V, plain.V, atol=12 * 2.0**-spec.question.scale)
    np.testing.assert_allclose(ffc.U, plain.U, atol=12 * 2.0**-spec.question.scale)
    assert ffc.counts.tolist() == plain.counts.tolist()
    np.testing.assert_allclose(
        solve_ffc(ffc, ridge=0.1).weights, solve_ffc(plain, ridge=0.1).weights, atol=1e-6
    )


def test_the_sum_of_ccvr_vectors_is_the_moments_of_each_class() -> None:
    spec = asked(statistics=CCVR)
    members = [member(seed) for seed in range(12)]
    total = np.sum([compute_vector(spec, *each) for each in members], axis=0)
    features, labels = (np.concatenate(parts) for parts in zip(*members, strict=True))
    found: Any = read_pooled(spec, total, 12)
    assert list(found) == ["ccvr"]
    ccvr = found["ccvr"]
    assert isinstance(ccvr, CCVRStatistics)
    assert ccvr.counts.tolist() == np.bincount(labels).tolist()
    scaled = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(ccvr.mean(1), scaled[labels == 1].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(ccvr.covariance(1), np.cov(scaled[labels == 1].T), atol=1e-6)


@both
def test_a_sum_that_no_honest_members_have_is_refused(statistics: list[dict[str, Any]]) -> None:
    spec = asked(**fields_of(*statistics))
    total = np.sum([compute_vector(spec, *member(seed)) for seed in range(12)], axis=0)
    for element in (len(total) // 4, len(total) // 2, len(total) - 4):  # no count of rows
        spoiled = total.copy()
        spoiled[element] += 1 << spec.ring_bits - 3
        with pytest.raises(PeerFault, match=r"identity broken: [a-z ]+$") as refused:
            read_pooled(spec, spoiled, 12)
        assert refused.value.cause is Cause.SUM_CHECK_FAILED


SPARSE = [[4.0, 3, 0, 0]] * 9 + [[0, 4.0, 3, 0]] * 4 + [[0, 0, 0, 2.0]] * 2


@pytest.mark.parametrize(("statistics", "by_class"), [(LINEAR_AND_KERNEL, False), (CCVR, True)])
def test_sparse_features_are_in_no_statistic(*, statistics: Any, by_class: bool) -> None:
    """Feature 2 is in four rows and feature 3 in two; with CCVR, class 1 has feature 0 in four rows only."""
    labels = np.array([0] * 5 + [1] * 10)
    spec = asked(**fields_of(*statistics))
    found: Any = read_pooled(spec, compute_vector(spec, np.array(SPARSE), labels), 1)
    left = np.array(SPARSE) / np.array([5.0] * 13 + [2.0] * 2)[:, None]
    left[:, 2:] = 0
    if by_class:
        left[5:, 0] = 0
    for statistic, made in zip(spec.question.statistics, found.values(), strict=True):
        plain, mapped = make_accumulator(
            statistic, 4, 3, spec.question.digest, constant=spec.question.constant
        )
        plain.add(mapped(left), labels)
        expected, seen = (each.pooled if isinstance(each, CCVRStatistics) else each for each in (plain, made))
        np.testing.assert_allclose(seen.V, expected.V, atol=1e-9)
        np.testing.assert_allclose(seen.U, expected.U, atol=1e-9)
        assert seen.counts.tolist() == [5, 10, 0]


def test_a_withheld_class_s_rows_hold_no_feature() -> None:
    labels = np.array([0] * 9 + [2] * 4 + [0] * 2)
    spec = asked(withheld=(2,))
    kept = labels != 2
    expected = compute_vector(asked(), np.array(SPARSE)[kept], labels[kept])
    assert (compute_vector(spec, np.array(SPARSE), labels) == expected).all()


@both
def test_blocks_of_rows_change_nothing(
    statistics: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((60, 4)) * (rng.random((60, 4)) < 0.08), rng.integers(0, 3, 60)
    spec = asked(**fields_of(*statistics))
    whole = compute_vector(spec, features, labels)
    monkeypatch.setattr("veilsum.calibration.rows.ROW_BLOCK_ELEMENTS", 8)
    np.testing.assert_allclose(compute_vector(spec, features, labels), whole, atol=1)


def test_under_noise_a_row_s_numbers_follow_from_that_row_alone() -> None:
    spec = noisy("sum", "sum", {"kind": "ffc"}, dim=4, classes=["a", "b", "c"])
    one = noiseless_vector(spec, np.array(SPARSE[-1:]), np.array([1]), {})
    many = noiseless_vector(spec, np.array(SPARSE), np.ones(15, int), {})
    assert one.any()
    assert (noiseless_vector(spec, np.array(SPARSE[:-1]), np.ones(14, int), {}) + one == many).all()


@both
def test_a_member_without_rows_sends_zeros(statistics: list[dict[str, Any]]) -> None:
    features, labels = member(0)
    assert not compute_vector(asked(**fields_of(*statistics)), features[:0], labels[:0]).any()
    assert not compute_vector(asked(**fields_of(*statistics), withheld=(0, 1, 2)), features, labels).any()
    assert not compute_vector(asked("count"), features[:0], labels[:0]).any()


@both
def test_a_row_that_can_t_be_used_adds_nothing(statistics: list[dict[str, Any]]) -> None:
    features, labels = member(0)
    spoiled = features.copy()
    spoiled[3], spoiled[5, 1] = 0, np.nan
    named = labels.copy()
    named[7], named[8] = 3, -1
    kept = np.setdiff1d(np.arange(len(labels)), [3, 5, 7, 8])
    spec = asked(**fields_of(*statistics))
    assert (compute_vector(spec, spoiled, named) == compute_vector(spec, features[kept], labels[kept])).all()


def test_a_class_is_held_from_so_many_rows_on() -> None:
    labels = np.array([0] * 4 + [1] * 5 + [2] * 6)
    assert compute_vector(asked("count"), np.ones((15, 4)), labels).tolist() == [0, 1, 1]


def test_a_class_is_held_with_features_of_its_own() -> None:
    """Its rows must bear its sums by themselves: other classes may be left out, and their columns with them."""
    labels, features = np.array([0] * 5 + [1] * 5 + [2] * 30), np.ones((40, 4))
    features[1:5, 1:] = 0  # class 0 has one row with all features
    assert compute_vector(asked("count"), features, labels).tolist() == [0, 1, 1]


def test_levels_are_reached_by_rows_with_features() -> None:
    records = {"least": 40, "most": 20_000, "least_per_class": 9, "rows_per_id": 1}
    spec, labels = asked("rows", records=records), np.zeros(160, int)
    dense, thin = np.ones((160, 4)), np.ones((160, 4))
    thin[20:, 1:] = 0
    assert compute_vector(spec, dense, labels).tolist() == [1] * 8
    assert 0 < compute_vector(spec, thin, labels).sum() < 8


def test_own_rows_bear_a_sum_by_their_features() -> None:
    question, labels = asked().question, np.zeros(40, int)
    sparse = np.zeros((40, 4))
    sparse[:, 0] = 1
    assert rows_bear_sum(question, np.ones((40, 4)), labels)
    assert not rows_bear_sum(question, sparse, labels)
    assert not rows_bear_sum(question, np.ones((40, 4)), labels, more=10_000)


def test_rows_of_published_classes_reach_levels() -> None:
    labels = np.array([0] * 50 + [1] * 30 + [2] * 20 + [-1] * 100)
    spec = asked("rows", records={"least": 40, "most": 20_000, "least_per_class": 9, "rows_per_id": 1})
    rows = np.ones((len(labels), spec.question.dim))
    assert compute_vector(spec, rows, labels).tolist() == [1] * 6 + [0] * 2  # 100 rows are 2.5 times least
    left_out = replace(spec, withheld=(0,))
    assert compute_vector(left_out, rows, labels).tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
