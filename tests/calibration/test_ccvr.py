import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.calibration.records import ccvr, clouds, ffc, total_of, unit
from veilsum.calibration import CalibrationError, CCVRStatistics, solve_lda
from veilsum.calibration.errors import (
    ConfigMismatch,
    LabelOutOfRange,
    LayoutMismatch,
    NonFinite,
    NoRecords,
    NormExceeded,
    SumCheckFailed,
)
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.layout import ccvr_layout


def records(n: int, dim: int, classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 1, (n, dim)), rng.integers(0, classes, n)


def test_means_and_covariances_are_those_of_the_records() -> None:
    rows, labels = records(300, 6, 4)
    labels[labels == 3] = 0
    labels[:1] = 3
    statistics = ccvr(rows, labels, 5)
    assert statistics.counts.tolist() == np.bincount(labels, minlength=5).tolist()
    for label in range(3):
        own = rows[labels == label]
        np.testing.assert_allclose(statistics.mean(label), own.mean(axis=0), atol=1e-13)
        np.testing.assert_allclose(statistics.covariance(label), np.cov(own.T), atol=1e-12)
    centred = rows - np.array([rows[labels == c].mean(axis=0) for c in range(4)])[labels]
    np.testing.assert_allclose(statistics.shared_covariance(), centred.T @ centred / 296, atol=1e-12)
    pair = ccvr(rows[:2], [0, 0], 1)
    for covariance in (pair.covariance(0), pair.shared_covariance()):
        np.testing.assert_allclose(covariance, np.cov(rows[:2].T), atol=1e-12)
    with pytest.raises(NoRecords):
        statistics.covariance(3)
    with pytest.raises(NoRecords):
        statistics.mean(4)


def test_clients_means_and_covariances_add_up_by_the_paper_s_equation() -> None:
    """Eq. 4, from unbiased client covariances: these sums determine what CCVR's clients send, and vice versa."""
    rows, labels = records(200, 5, 2)
    members = [ccvr(rows[i::4], labels[i::4], 2) for i in range(4)]
    total = ccvr(rows, labels, 2)
    for label in range(2):
        n = total.counts[label]
        parts = [(m.counts[label], m.mean(label), m.covariance(label)) for m in members]
        mean = sum(k * mu for k, mu, _ in parts) / n
        covariance = sum((k - 1) * S + k * np.outer(mu, mu) for k, mu, S in parts) / (n - 1)
        covariance -= n / (n - 1) * np.outer(mean, mean)
        np.testing.assert_allclose(total.mean(label), mean, atol=1e-13)
        np.testing.assert_allclose(total.covariance(label), covariance, atol=1e-12)


def test_means_and_the_shared_covariance_are_lda_s() -> None:
    rows, labels = clouds(200, 6, 3)
    lda, found = solve_lda(ffc(rows, labels, 3), shrinkage=0), ccvr(rows, labels, 3, bound=1.0)
    np.testing.assert_allclose(found.shared_covariance(), lda.covariance, atol=1e-13)
    np.testing.assert_allclose([found.mean(label) for label in range(3)], lda.means, atol=1e-13)


def test_batches_and_merges_are_concatenation() -> None:
    rows, labels = records(100, 5, 3)
    whole, parts = ccvr(rows, labels, 3), ccvr(rows[:40], labels[:40], 3)
    parts.update(rows[40:70].astype(np.float32), labels[40:70])
    parts.merge(ccvr(rows[70:], labels[70:], 3))
    parts.update(np.empty((0, 5)), [])
    assert np.abs(whole.vector(SumsLattice(16)) - parts.vector(SumsLattice(16))).max() <= 1


def test_encoded_and_added_vectors_are_the_plain_sum() -> None:
    rows, labels = records(120, 6, 3)
    lattice, found, plain = SumsLattice(31), CCVRStatistics(6, 3, norm_bound=4.0), ccvr(rows, labels, 3)
    assert found.layout.elements == 3 + 3 * 6 + 3 * 21
    found.add_sums(lattice, total_of([ccvr(rows[i::4], labels[i::4], 3) for i in range(4)], lattice))
    assert (found.counts == plain.counts).all()
    for label in range(3):
        np.testing.assert_allclose(found.mean(label), plain.mean(label), atol=1e-9)
        np.testing.assert_allclose(found.covariance(label), plain.covariance(label), atol=1e-8)
    units, together = ccvr(unit(rows), labels, 3, bound=1.0).pooled, ffc(unit(rows), labels, 3)
    np.testing.assert_allclose(units.V, together.V, atol=1e-9)
    np.testing.assert_allclose(units.U, together.U, atol=1e-9)
    assert (units.counts == together.counts).all()
    assert units.constant == together.constant


def test_no_record_adds_more_than_one() -> None:
    vector = ccvr(np.array([[4.0000001, 0.0], [0.0, -3.0]]), [0, 1], 2).vector(SumsLattice(20))
    assert np.abs(vector).max() == 2**20
    # A zero row is a record like any other: nothing is normalised.
    assert ccvr(np.zeros((1, 2)), [0], 2).records == 1


def test_encoding_and_decoding_hold_no_second_array() -> None:
    rows, labels = records(600, 250, 40)
    lattice, statistics = SumsLattice(31), CCVRStatistics(250, 40, norm_bound=16.0)
    found = CCVRStatistics(250, 40, norm_bound=16.0)
    accumulator = 8 * statistics.layout.elements
    out = np.empty(statistics.layout.elements, np.int64)
    tracemalloc.start()
    try:
        statistics.update(rows, labels)
        found.add_sums(lattice, statistics.vector(lattice, out))
        for label in range(40):
            found.covariance(label)
        # The arrays above were made before: what was made inside is less than either.
        assert tracemalloc.get_traced_memory()[1] < accumulator / 2
    finally:
        tracemalloc.stop()
    assert accumulator > 10e6
    np.testing.assert_allclose(found.covariance(7), statistics.covariance(7), atol=1e-6)


def test_a_refused_batch_adds_nothing() -> None:
    statistics = CCVRStatistics(3, 2, norm_bound=2.0)
    for rows, labels, error, match in (
        ([[1.0, 1, 1], [2, 2, 2]], [0, 1], NormExceeded, "rows 1 have norm 3.4641"),
        ([[1.0, 1, 1], [1, np.nan, 2]], [0, 1], NonFinite, "rows 1"),
        ([[1.0, 1, 1], [1e300, 1e300, 2]], [0, 1], NormExceeded, "rows 1"),
        (np.ones((2, 3)), [0, 2], LabelOutOfRange, "in rows 1 "),
    ):
        with pytest.raises(error, match=match):
            statistics.update(np.array(rows), labels)
    assert statistics.records == 0


def broken_identity(found: CCVRStatistics, lattice: SumsLattice, members: int) -> str | None:
    """Name the identity that the sums break; None if they keep all."""
    try:
        found.check(lattice, members)
    except SumCheckFailed as failed:
        return failed.identity
    return None


@pytest.mark.parametrize(
    ("element", "change", "identity"),
    [
        (0, 0.0, None),
        (0, 0.5, "counts"),
        (4, 1000.0, "class mass"),
        (ccvr_layout(6, 4).slices["M.0"].start, 1000.0, "trace"),
        (ccvr_layout(6, 4).slices["M.0"].start, -1000.0, "semidefinite"),
        (0, -39.0, "class mass"),
        (4 + 3 * 6, 1.0, "class mass"),  # the sums of the class without records
    ],
)
def test_honest_sums_pass_and_tampered_ones_are_named(
    element: int, change: float, identity: str | None
) -> None:
    rows, labels = records(120, 6, 3)
    lattice, found = SumsLattice(20), CCVRStatistics(6, 4, norm_bound=4.0)
    total = total_of([ccvr(rows[i::4], labels[i::4], 4) for i in range(4)], lattice)
    total[element] += int(change * 2**20)
    found.add_sums(lattice, total)
    assert broken_identity(found, lattice, 4) == identity


@pytest.mark.parametrize(
    ("count", "sums", "second_moment", "identity"),
    [
        (0, [3, 0], [0, 0, 0], None),
        (0, [4, 0], [0, 0, 0], "class mass"),
        (1, [1027, 0], [1024, 0, 0], None),
        (1, [1028, 0], [1024, 0, 0], "class mass"),
        (1, [0, 0], [774, 0, 256], None),
        (1, [0, 0], [775, 0, 256], "trace"),
        (1, [0, 0], [256, 265, 256], None),
        (1, [0, 0], [256, 266, 256], "semidefinite"),
        (2**26, [0, 0], [2**35, 2**35 + 2048 + 9, 2**35], None),
        (2**26, [0, 0], [2**35, 2**35 + 2048 + 10, 2**35], "semidefinite"),
    ],
)
def test_half_a_step_a_member_and_term_is_tolerated_and_no_more(
    count: int, sums: list[int], second_moment: list[int], identity: str | None
) -> None:
    """Of six members: 3 steps of a sum, 2 · 3 of a trace, 3 · 3 of an eigenvalue. 2²⁶ records add 2 · 1024 by the error of float64."""
    lattice, found = SumsLattice(10), CCVRStatistics(2, 1)
    found.add_sums(lattice, np.array([1024 * count, *sums, *second_moment]))
    assert broken_identity(found, lattice, 6) == identity


def test_impossible_sums_are_refused() -> None:
    for bound in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(CalibrationError, match="norm bound"):
            CCVRStatistics(3, 2, norm_bound=bound)
    statistics, lattice = CCVRStatistics(3, 2), SumsLattice(4)
    with pytest.raises(ConfigMismatch):
        statistics.merge(CCVRStatistics(3, 2, norm_bound=2.0))
    with pytest.raises(NoRecords):
        statistics.shared_covariance()
    for size in (21, 1):
        with pytest.raises(LayoutMismatch):
            statistics.add_sums(lattice, np.zeros(size, np.int64))
    for count in (8, -16):
        wrong = CCVRStatistics(3, 2)
        wrong.add_sums(lattice, np.array([count] + 19 * [0]))
        with pytest.raises(SumCheckFailed):
            _ = wrong.records
