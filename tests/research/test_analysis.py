from typing import Any

import numpy as np
import pytest

from research.analysis import (
    direction_consistency,
    head_norms,
    linear_cka,
    norm_difference,
    separability,
    sliced_wasserstein,
    sweep,
)
from training.calibrating import MemberFeatures, fit_calibration

RNG = np.random.default_rng(0)


def test_cka_of_worked_cases() -> None:
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert linear_cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
    # XᵀX = 2I has norm √8; Y keeps the first axis alone: YᵀY = 2, ‖YᵀX‖² = 4.
    assert linear_cka(x, x[:, :1]) == pytest.approx(4 / (8**0.5 * 2))
    assert linear_cka(x[:, :1], x[:, 1:]) == pytest.approx(0)
    assert np.isnan(linear_cka(x, np.ones((4, 3))))
    with pytest.raises(ValueError, match="there are 4 and 3"):
        linear_cka(x, x[:3])


def test_heads_of_two_members_by_hand() -> None:
    # Class 0 at a right angle with norms 1 and 2, class 1 aligned with norms 3 and 3.
    heads = np.array([[[1.0, 0.0], [0.0, 3.0]], [[0.0, 2.0], [0.0, 3.0]]])
    assert head_norms(heads).tolist() == [[1, 3], [2, 3]]
    assert direction_consistency(heads) == pytest.approx(0.5)
    assert norm_difference(heads) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="takes two or more"):
        direction_consistency(heads[:1])


def test_a_slice_of_unequal_samples_by_hand() -> None:
    # {0, 1} against {0, 0, 3}: over thirds and halves the gaps are 0, 0, 1, 2 with widths ⅓, ⅙, ⅙, ⅓.
    x, y = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [3.0]])
    assert sliced_wasserstein(x, y, np.array([[1.0]])) == pytest.approx((1 / 6 + 4 / 3) ** 0.5)


def test_separability_grows_with_the_distance_between_classes() -> None:
    z, labels = RNG.normal(size=(90, 4)), np.repeat([0, 1, 2], 30)
    near, far = (
        separability(z + shift * np.eye(4)[labels], labels, np.random.default_rng(1)) for shift in (1, 8)
    )
    assert far > 3 * near
    with pytest.raises(ValueError, match="takes two or more"):
        separability(z, np.zeros(90, dtype=np.int64), np.random.default_rng(1))


def held() -> MemberFeatures:
    labels = np.arange(120) % 3
    z = (RNG.normal(size=(120, 4)) + 2 * np.eye(4)[labels]).astype(np.float32)
    halves = (slice(60), slice(60, None))
    return MemberFeatures(
        tuple(z[half] for half in halves), tuple(labels[half] for half in halves), 3, np.zeros((5, 3))
    )


@pytest.mark.parametrize(
    ("kind", "parameter", "values", "others"),
    [
        ("ffc", "ridge", [0.01, 100.0], {"constant": True}),
        ("ccvr", "per_class", [5, 200], {"solver": "exact"}),
    ],
)
def test_a_sweep_is_the_calibration_at_each_value(
    kind: str, parameter: str, values: list[float], others: dict[str, Any]
) -> None:
    own = held()
    z, labels = own.features[0], own.labels[0]
    found = sweep(kind, own, z, labels, parameter, values, **others)
    assert (found.kind, found.parameter, list(found.values)) == (kind, parameter, values)
    for value, accuracy in zip(values, found.accuracies, strict=True):
        alone = fit_calibration(kind, own, **{parameter: value}, **others)
        assert accuracy == float((alone.predict(z) == labels).mean()) > 0.6
