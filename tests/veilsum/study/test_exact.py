import math
from typing import Any

import numpy as np
import pytest

from calibration import CCVRStatistics, FFCStatistics, RandomFeatures, solve_ffc
from calibration.errors import SumCheckFailed
from protocol.causes import Cause
from protocol.errors import PeerFault
from tests.veilsum.study.test_study import content_of, whole
from veilsum.study import exact
from veilsum.study.content import Question

THREE = [
    {"kind": "ffc", "bias": True},
    {"kind": "random-features", "size": 8, "bandwidth": 0.7},
    {"kind": "ccvr"},
]


def asked(**more: Any) -> Question:
    """A question over 4 features and 3 classes."""
    values = whole(dim=4, classes=["a", "b", "c"], **more)
    if any(statistic["kind"] == "ccvr" for statistic in values["question"]["statistics"]):
        values["after"]["ccvr"] = {"samples_per_class": 100, "power": 0.5}
    return content_of(values).question


def member(seed: int, rows: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 4)).astype(np.float32), rng.integers(0, 3, rows)


def by_the_page(question: Question, features: Any, labels: Any, withheld: tuple[int, ...] = ()) -> list[int]:
    """The vector as docs/protocol-next.md §8.1 words it, an element at a time."""
    kept = [(f.astype(float), c) for f, c in zip(features, labels.tolist(), strict=True) if c not in withheld]
    units = [(f / math.sqrt(math.fsum(f * f)), c) for f, c in kept]
    classes = len(question.classes)
    values: list[float] = []

    def moments(rows: list[tuple[Any, int]]) -> None:
        width = len(rows[0][0])
        values.extend(math.fsum(r[i] * r[j] for r, _ in rows) for i in range(width) for j in range(i, width))
        values.extend(
            math.fsum(r[i] for r, c in rows if c == k) for i in range(width) for k in range(classes)
        )
        values.extend(sum(c == k for _, c in rows) for k in range(classes))

    for block in question.statistics:
        if block.kind == "ffc":
            root = math.sqrt(0.5)
            moments([(np.append(z * root, root) if block.bias else z, c) for z, c in units])
        elif block.kind == "random-features":
            omega = RandomFeatures(question.dim, block.size, block.bandwidth, question.digest).directions
            scale = math.sqrt(2 / block.size)
            moments(
                [
                    (
                        np.array([f(w @ z) * scale for w in omega for f in (math.cos, math.sin)]),
                        c,
                    )
                    for z, c in units
                ]
            )
        else:
            values.extend(sum(c == k for _, c in units) for k in range(classes))
            values.extend(
                math.fsum(z[i] for z, c in units if c == k) for k in range(classes) for i in range(4)
            )
            values.extend(
                math.fsum(z[i] * z[j] for z, c in units if c == k)
                for k in range(classes)
                for i in range(4)
                for j in range(i, 4)
            )
    return [round(value * 2**question.scale) for value in values]


def test_the_example_of_the_page() -> None:
    records = {"least": 17, "most": 20, "least_per_class": 1, "rows_per_id": 1}
    question = content_of(
        whole(dim=2, ring_bits=32, members_min=3, members_max=3, a=0, withhold={"margin": 0}, records=records)
    ).question
    found = exact.vector(question, np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([0, 1]))
    assert found.tolist() == [
        12079596,
        16106127,
        55029268,
        20132659,
        0,
        26843546,
        33554432,
        33554432,
        33554432,
    ]


@pytest.mark.parametrize("withheld", [(), (1,), (0, 2)])
@pytest.mark.parametrize("statistics", [THREE[:1], THREE[1:2], THREE[2:], THREE])
def test_a_vector_is_what_the_page_says(statistics: Any, withheld: tuple[int, ...]) -> None:
    question = asked(statistics=statistics, ring_bits=32)
    features, labels = member(0)
    found = exact.vector(question, features, labels, withheld)
    assert found.shape == (question.elements,)
    assert np.abs(found - by_the_page(question, features, labels, withheld)).max() <= 1


def test_the_sum_of_vectors_is_the_pooled_statistics() -> None:
    question = asked(statistics=THREE)
    members = [member(seed) for seed in range(12)]
    total = np.sum([exact.vector(question, *each) for each in members], axis=0)
    features, labels = (np.concatenate(parts) for parts in zip(*members, strict=True))
    found = exact.pooled(question, total, 12)
    assert list(found) == ["ffc", "random-features", "ccvr"]
    plain = FFCStatistics(4, 3, bias=True, normalise=True)
    plain.update(features, labels)
    ffc = found["ffc"]
    assert isinstance(ffc, FFCStatistics)
    np.testing.assert_allclose(ffc.V, plain.V, atol=12 * 2.0**-question.scale)
    np.testing.assert_allclose(ffc.U, plain.U, atol=12 * 2.0**-question.scale)
    assert ffc.counts.tolist() == plain.counts.tolist()
    np.testing.assert_allclose(
        solve_ffc(ffc, ridge=0.1).weights, solve_ffc(plain, ridge=0.1).weights, atol=1e-6
    )
    ccvr = found["ccvr"]
    assert isinstance(ccvr, CCVRStatistics)
    assert ccvr.counts.tolist() == plain.counts.tolist()
    scaled = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(ccvr.mean(1), scaled[labels == 1].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(ccvr.covariance(1), np.cov(scaled[labels == 1].T), atol=1e-6)


def test_a_sum_that_no_honest_members_have_is_refused() -> None:
    question = asked(statistics=THREE)
    total = np.sum([exact.vector(question, *member(seed)) for seed in range(12)], axis=0)
    for element in (0, len(total) // 2, len(total) - 1):
        spoiled = total.copy()
        spoiled[element] += 1 << question.ring_bits - 3
        with pytest.raises(SumCheckFailed):
            exact.pooled(question, spoiled, 12)


def test_a_member_without_rows_sends_zeros() -> None:
    question = asked(statistics=THREE)
    features, labels = member(0)
    assert not exact.vector(question, features[:0], labels[:0]).any()
    assert not exact.vector(question, features, labels, (0, 1, 2)).any()
    assert not exact.indicator(question, labels[:0]).any()


def test_a_class_is_held_from_so_many_rows_on() -> None:
    question = asked()
    assert exact.indicator(question, np.array([0] * 4 + [1] * 5 + [2] * 6)).tolist() == [0, 1, 1]


def test_rare_classes_and_thin_ones_are_withheld() -> None:
    assert exact.rare(asked(), (8, 9, 12)) == (0,)
    assert exact.rare(asked(withhold={"margin": 0}), (5, 6, 12)) == (0,)
    # ⌈2·4/5⌉ + a + r = 8: the floor of 9 holders stands; with one row a class it is 8 + 6.
    assert exact.rare(asked(statistics=THREE), (8, 9, 12)) == (0,)
    one_each = {"least": 50, "most": 20_000, "least_per_class": 1, "rows_per_id": 1}
    assert exact.rare(asked(statistics=THREE, records=one_each), (13, 14, 15)) == (0,)
    assert exact.rare(asked(statistics=THREE, records=one_each, thin_classes=True), (13, 9, 8)) == (2,)
    assert exact.rare(asked(withhold=None, thin_classes=True), (0, 1, 2)) == ()


def test_published_classes_hold_enough_rows_or_the_sum_is_refused() -> None:
    question = asked()
    exact.check_enough(question, (12, 0, 0))
    with pytest.raises(PeerFault) as refused:
        exact.check_enough(question, (8, 8, 8))
    assert refused.value.cause is Cause.INDICATOR_MISMATCH
    assert "as few as 0 rows" in refused.value.detail
    one_each = {"least": 50, "most": 20_000, "least_per_class": 1, "rows_per_id": 1}
    with pytest.raises(PeerFault, match="as few as 6 rows"):
        exact.check_enough(asked(records=one_each), (12, 0, 0))
