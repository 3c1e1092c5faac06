from typing import Any

import numpy as np
import pytest

from tests.study.specs import fields_of, noisy, spec_of
from veilsum.calibration import CCVRStatistics, FFCStatistics, solve_ffc
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.study.answers import read_pooled
from veilsum.study.vectors import compute_vector, noiseless_vector, rows_bear_sum

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
def test_a_row_that_can_t_be_used_adds_nothing(statistics: list[dict[str, Any]]) -> None:
    features, labels = member(0)
    spoiled = features.copy()
    spoiled[3], spoiled[5, 1] = 0, np.nan
    named = labels.copy()
    named[7], named[8] = 3, -1
    kept = np.setdiff1d(np.arange(len(labels)), [3, 5, 7, 8])
    spec = asked(**fields_of(*statistics))
    assert (compute_vector(spec, spoiled, named) == compute_vector(spec, features[kept], labels[kept])).all()


def test_own_rows_bear_a_sum_by_their_features() -> None:
    question, labels = asked().question, np.zeros(40, int)
    sparse = np.zeros((40, 4))
    sparse[:, 0] = 1
    assert rows_bear_sum(question, np.ones((40, 4)), labels)
    assert not rows_bear_sum(question, sparse, labels)
    assert not rows_bear_sum(question, np.ones((40, 4)), labels, more=10_000)
