from typing import Any

import numpy as np
import pytest
import torch

from research.analysis import (
    analyse,
    cka_by_layer,
    direction_consistency,
    embed,
    head_norms,
    layer_outputs,
    linear_cka,
    mean_similarity,
    norm_difference,
    separability,
    singular_values,
    sliced_wasserstein,
    sweep,
)
from training.calibrating import MemberFeatures, calibrate
from training.data import Dataset
from training.heads import Classifier, LearnedHead
from training.models import ExtractorConfig

RNG = np.random.default_rng(0)


def moon() -> Classifier:
    return Classifier(ExtractorConfig("moon_cnn", (1, 28, 28)).build(), LearnedHead(256, 10), normalise=False)


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


def test_cka_is_the_formula_over_features() -> None:
    x, y = RNG.normal(size=(30, 5)), RNG.normal(size=(30, 7))
    a, b = x - x.mean(0), y - y.mean(0)
    by_features = np.sum((b.T @ a) ** 2) / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))
    assert linear_cka(x, y) == pytest.approx(by_features)


def test_layers_are_those_of_the_papers_table() -> None:
    model, x = moon(), torch.rand(4, 1, 28, 28)
    outputs = layer_outputs(model, x)
    assert [(name, values.shape) for name, values in outputs.items()] == [
        ("layer 1", (4, 6 * 12 * 12)),
        ("layer 2", (4, 16 * 4 * 4)),
        ("layer 3", (4, 120)),
        ("layer 4", (4, 84)),
        ("layer 5", (4, 84)),
        ("layer 6", (4, 256)),
        ("head", (4, 10)),
    ]
    np.testing.assert_allclose(outputs["head"], model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert not model.head._forward_hooks


def test_similarity_by_layer_is_between_every_two_members() -> None:
    x = torch.rand(20, 1, 28, 28)
    outputs = [layer_outputs(model, x) for model in (moon(), moon(), moon())]
    matrices = cka_by_layer(outputs)
    matrix = matrices["layer 3"]
    np.testing.assert_allclose(np.diag(matrix), 1)
    assert matrix[0, 2] == pytest.approx(linear_cka(outputs[0]["layer 3"], outputs[2]["layer 3"]))
    assert mean_similarity(matrix) == pytest.approx((matrix[0, 1] + matrix[0, 2] + matrix[1, 2]) / 3)


def test_heads_of_two_members_by_hand() -> None:
    # Class 0 at a right angle with norms 1 and 2, class 1 aligned with norms 3 and 3.
    heads = np.array([[[1.0, 0.0], [0.0, 3.0]], [[0.0, 2.0], [0.0, 3.0]]])
    assert head_norms(heads).tolist() == [[1, 3], [2, 3]]
    assert direction_consistency(heads) == pytest.approx(0.5)
    assert norm_difference(heads) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="takes two or more"):
        direction_consistency(heads[:1])


def test_singular_values_of_a_head() -> None:
    np.testing.assert_allclose(singular_values(np.array([[3.0, 0, 0], [0, 0, 4]])), [4, 3])


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (4, 6), (7, 3)])
def test_a_slice_is_the_distance_on_the_line(n: int, m: int) -> None:
    x, y = RNG.normal(size=(n, 1)), RNG.normal(size=(m, 1)) + 9
    # On the line, samples that lie wholly apart move by as much on average; by a shift alone, by exactly that.
    line = np.array([[1.0]])
    assert sliced_wasserstein(x, x + 2, line) == pytest.approx(2)
    assert sliced_wasserstein(x, y, line) >= abs(x.mean() - y.mean()) - 1e-12
    # A record repeated changes no distribution.
    assert sliced_wasserstein(np.repeat(x, 3, axis=0), y, line) == pytest.approx(
        sliced_wasserstein(x, y, line)
    )


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


def test_an_embedding_keeps_neighbours_together() -> None:
    z = np.concatenate([RNG.normal(size=(20, 8)), RNG.normal(size=(20, 8)) + 20])
    plane = embed(z, seed=1)
    assert plane.shape == (40, 2)
    apart = np.linalg.norm(plane[:20].mean(0) - plane[20:].mean(0))
    assert apart > 2 * plane[:20].std()
    np.testing.assert_array_equal(plane, embed(z, seed=1))
    with pytest.raises(ValueError, match="three records or more, not 2"):
        embed(z[:2])


def held() -> MemberFeatures:
    labels = np.arange(120) % 3
    z = (RNG.normal(size=(120, 4)) + 2 * np.eye(4)[labels]).astype(np.float32)
    halves = (slice(60), slice(60, None))
    return MemberFeatures(
        tuple(z[half] for half in halves), tuple(labels[half] for half in halves), 3, np.zeros((5, 3))
    )


@pytest.mark.parametrize(
    ("kind", "parameter", "values", "others"),
    [("ffc", "ridge", [0.01, 100.0], {"bias": True}), ("ccvr", "per_class", [5, 200], {"solver": "exact"})],
)
def test_a_sweep_is_the_calibration_at_each_value(
    kind: str, parameter: str, values: list[float], others: dict[str, Any]
) -> None:
    own = held()
    z, labels = own.features[0], own.labels[0]
    found = sweep(kind, own, z, labels, parameter, values, **others)
    assert (found.kind, found.parameter, list(found.values)) == (kind, parameter, values)
    for value, accuracy in zip(values, found.accuracies, strict=True):
        alone = calibrate(kind, own, **{parameter: value}, **others)
        assert accuracy == float((alone.predict(z) == labels).mean()) > 0.6


def test_all_of_it_at_once_goes_into_a_result() -> None:
    data = Dataset(torch.rand(30, 1, 28, 28), torch.arange(30) % 10, 10, "toy")
    found = analyse(moon(), (moon() for _ in range(3)), data, predicted={"before": np.arange(30) % 10})
    assert list(found.cka) == ["layer 1", "layer 2", "layer 3", "layer 4", "layer 5", "layer 6", "head"]
    assert np.array(found.cka["head"]).shape == (3, 3)
    assert np.array(found.head_norms).shape == (3, 10)
    direction = found.consistency["direction"]
    assert direction is not None
    assert -1 <= direction <= 1
    assert len(found.singular_values) == 10
    assert found.separability is not None
    assert len(found.embedding) == len(found.labels) == len(found.predicted["before"]) == 30
    alone = analyse(moon(), [], data)
    assert (alone.cka, alone.head_norms, alone.consistency) == ({}, (), {})
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_records_that_lie_sorted_by_class_are_taken_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.analysis._EMBEDDED", 50)
    by_class = Dataset(torch.rand(100, 1, 28, 28), torch.arange(100) // 10, 10, "sorted")
    predicted = by_class.y.numpy()
    found = analyse(moon(), [], by_class, predicted={"right": predicted})
    assert np.bincount(found.labels).tolist() == [5] * 10
    assert found.predicted["right"] == found.labels
