"""Heads of any kind, and their files."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.comparison import Judgement
from tests.calibration.records import clouds, ffc
from veilsum.calibration import CalibrationError, Head, RandomFeatures, Solution, solve_ffc
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.errors import NonFinite, NotUnitNorm, ShapeMismatch
from veilsum.calibration.head import log_softmax
from veilsum.calibration.head_file import Calibrated, notes_in
from veilsum.calibration.judge_tables import Scale
from veilsum.calibration.random_features import KernelHead


def head_of(*columns: list[float], bias: list[float] | None = None, empty: tuple[int, ...] = ()) -> Head:
    return Head(np.array(columns).T, None if bias is None else np.array(bias), empty)


@pytest.fixture
def solution() -> Solution:
    rows, labels = clouds(200, 6, 3)
    return solve_ffc(ffc(rows, labels + 1, 5, constant=True))


def test_classes_without_records_are_never_predicted(solution: Solution) -> None:
    assert solution.empty_classes == (0, 4)
    assert solution.bias is not None
    assert not solution.weights[:, [0, 4]].any()
    assert not solution.bias[[0, 4]].any()
    # Opposite to every class mean all scores are negative, and 0 would win.
    predicted = solution.predict(-solution.weights.sum(axis=1, keepdims=True).T, normalise=True)
    assert predicted.dtype == np.int64
    assert set(predicted.tolist()) <= {1, 2, 3}
    writable: Any = solution
    with pytest.raises(FrozenInstanceError):
        writable.ridge = 2.0


def test_scores_take_what_update_takes(solution: Solution) -> None:
    rows, _ = clouds(20, 6, 3, seed=1)
    scores = solution.scores(rows)
    assert scores.shape == (20, 5)
    np.testing.assert_allclose(solution.scores(torch.from_numpy(rows).float()), scores, atol=1e-6)
    np.testing.assert_allclose(solution.scores(7 * rows, normalise=True), scores, atol=1e-12)
    assert (solution.predict(rows) == scores[:, 1:4].argmax(axis=1) + 1).all()
    assert solution.predict(np.empty((0, 6))).shape == (0,)
    for wrong, error in ((2 * rows, NotUnitNorm), (np.full((1, 6), np.nan), NonFinite)):
        for each in (solution.rows, solution.scores, solution.predict, solution.probabilities):
            with pytest.raises(error):
                each(wrong)
    with pytest.raises(ShapeMismatch):
        solution.scores(rows[:, :-1])


def test_probabilities_are_a_softmax_over_the_classes_that_have_records() -> None:
    head = head_of([1.0, 0.0], [0.0, 1.0], [0.0, 0.0], empty=(2,))
    odds = np.exp(np.array([1.2, 1.6]))
    expected = [[*(odds / odds.sum()), 0.0]]
    np.testing.assert_allclose(head.probabilities(np.array([[0.6, 0.8]]), temperature=0.5), expected)
    assert (log_softmax(np.array([1e4, 0.0])) == [0.0, -1e4]).all()
    for temperature in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(CalibrationError):
            head.probabilities(np.eye(2), temperature=temperature)
        with pytest.raises(CalibrationError):
            head.with_prior(np.ones(3), np.ones(3), temperature=temperature)


def test_unit_columns_divide_the_bias_alike(solution: Solution) -> None:
    plain = head_of([3.0, 4.0], [0.0, 0.0], [0.0, 2.0]).with_unit_columns()
    np.testing.assert_allclose(plain.weights.T, [[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]])
    assert plain.bias is None
    biased = head_of([3.0, 0.0], bias=[4.0]).with_unit_columns()
    assert biased.bias is not None
    np.testing.assert_allclose([*biased.weights[:, 0], *biased.bias], [0.6, 0.0, 0.8])
    changed = solution.with_unit_columns()  # its diagnostics would be false
    assert (type(changed), changed.empty_classes) == (Head, (0, 4))


def test_a_prior_moves_the_odds_at_any_temperature() -> None:
    counts, prior, rows = np.array([30, 10, 0]), [1, 1, 5], np.ones((1, 1))
    for bias in (None, [0.1, 0.2, 0.0]):
        head = head_of([1.0], [0.5], [0.0], bias=bias, empty=(2,))
        for temperature in (1.0, 0.1):
            p = head.probabilities(rows, temperature=temperature)[0] * [0.5 / 0.75, 0.5 / 0.25, 1]
            moved = head.with_prior(counts, prior, temperature=temperature)
            np.testing.assert_allclose(moved.probabilities(rows, temperature=temperature)[0], p / p.sum())
            assert moved.empty_classes == (2,)
    head = head_of([1.0], [0.5])
    for wrong in ([1.0], [1.0, -1.0], [1.0, np.nan]):
        with pytest.raises(CalibrationError):
            head.with_prior([3, 4], wrong)
        with pytest.raises(CalibrationError):
            head.with_prior(wrong, [1.0] * len(wrong))
    with pytest.raises(CalibrationError):
        head.with_prior([3, 4], [1.0, 0.0])
    assert head.with_prior([3, 0], [1.0, 0.0]).bias == pytest.approx([0.0, 0.0])


RNG = np.random.default_rng(1)
CENTRE = np.array([0.1, -0.2, 0.3])
WEIGHTS, BIAS, PHI = RNG.normal(size=(3, 2)), RNG.normal(size=2), RandomFeatures(3, 4, 0.5, b"x")
HEADS: dict[str, Head] = {
    "linear": Head(WEIGHTS, None, ()),
    "biased": Head(WEIGHTS, BIAS, (1,)),
    "centred": Head(WEIGHTS, BIAS, (), centre=CENTRE),
    "centred random features": KernelHead(RNG.normal(size=(4, 2)), None, (), PHI, centre=CENTRE),
    "centred tukey": TukeyHead(WEIGHTS, None, (), None, unit=True, centre=CENTRE),
    "tukey": TukeyHead(WEIGHTS, BIAS, (), 0.5),
    "tukey of the first power": TukeyHead(WEIGHTS, BIAS, (), 1.0),
    "tukey of unit features": TukeyHead(WEIGHTS, BIAS, (), None, unit=True),
    "random features": KernelHead(RNG.normal(size=(4, 2)), None, (), PHI),
}


def test_no_array_is_in_its_representation(solution: Solution) -> None:
    assert repr(solution) == "<Solution, dim 6, classes 5>"
    assert {kind.__repr__ for kind in Head.__subclasses__()} == {Head.__repr__}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_from_its_file(name: str) -> None:
    scale = Scale(0.7, np.array([-1.0, 2.5]))
    kept = Calibrated(HEADS[name], (1,) if HEADS[name].empty_classes else (), 0.5, {"mu": 1.0}, scale)
    again = Calibrated.of(kept.arrays, json.loads(json.dumps(kept.notes)))
    features = np.abs(RNG.normal(size=(20, 3))) + 0.1
    np.testing.assert_array_equal(again.scores(features), kept.scores(features))
    np.testing.assert_array_equal(again.predict(features), kept.predict(features))
    assert (type(again.head), again.withheld, again.temperature) == (type(kept.head), kept.withheld, 0.5)
    assert again.noise == {"mu": 1.0}
    assert again.scale is not None
    assert (again.scale.temperature, again.scale.edges.tolist()) == (0.7, [-1.0, 2.5])
    assert (again.head.dim, again.head.classes) == (3, 2)
    assert type(kept.head.with_unit_columns()) is type(kept.head)
    assert set(Calibrated(HEADS["linear"]).without((0,)).predict(features).tolist()) == {1}


def test_a_temperature_is_the_given_one_or_the_head_s_or_1_with_a_warning() -> None:
    kept = Calibrated(HEADS["linear"], temperature=0.5)
    assert (kept.choose_temperature(), kept.choose_temperature(2.0)) == (0.5, 2.0)
    with pytest.warns(UserWarning, match="temperature"):
        assert Calibrated(HEADS["linear"]).choose_temperature() == 1


def forms(**changes: Any) -> dict[str, Any]:
    form = {"kind": "random-features", "mapped": 2, "size": 3, "bandwidth": 1.0, "seed": "00"}
    return {"form": form | changes}


ONES = {"weights": np.ones((3, 2))}
FALSE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *((arrays, {}) for arrays in ({}, {"weights": np.zeros((0, 2))}, {"weights": np.ones((3, 2), np.float32)})),
    *((ONES | more, {}) for more in ({"bias": np.ones(3)}, {"centre": np.zeros(2)}, {"other": np.eye(3)})),
    ({"weights": np.full((3, 2), np.inf)}, {}),
    *((ONES, {"classes_without_records": classes}) for classes in ([2], [True], [0, 1], [0, 0], 3)),
    *((ONES, {name: value}) for name, value in (("form", 3), ("noise", 3), ("temperature", 0.0))),
    *((ONES, {"judge": {"temperature": 1.0, "edges": []} | more}) for more in ({"temperature": 1}, {"edges": [np.inf]}, {"a": 1})),
    (ONES, {"form": {"kind": "quadratic"}}),
    *((ONES, {"form": {"kind": "tukey", "unit": True, "power": power}}) for power in (2.0, 0.0, "half")),
    *((ONES, forms(**changes)) for changes in ({}, {"mapped": 2**62}, {"mapped": True}, {"size": 4})),
    ({"weights": np.ones((4, 2))}, forms(size=4, bandwidth=-1.0)),
    ({"weights": np.ones((4, 2))}, forms(size=4, mapped=2**62)),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "notes"), FALSE)
def test_a_file_without_a_valid_head_is_refused(arrays: dict[str, Any], notes: dict[str, Any]) -> None:
    with pytest.raises(ShapeMismatch):
        Calibrated.of(arrays, notes)


def test_notes_are_read_from_the_file_s_header() -> None:
    header = json.dumps({"__metadata__": {"entry": '{"a": 1}', "list": "[]"}}).encode()
    file = len(header).to_bytes(8, "little") + header
    assert notes_in(file, "entry") == {"a": 1}
    assert notes_in(file, "other") == {}
    for content, entry in ((file, "list"), (b"", "entry"), (file[:20], "entry")):
        with pytest.raises(ShapeMismatch):
            notes_in(content, entry)


def test_a_file_holds_no_numbers_whose_scores_overflow() -> None:
    """A member judges every head that it is shown: one that overflows would end each start of its agent."""
    rows, labels = clouds(200, 4, 3)
    largest = np.full((4, 3), 1e150) * np.array([1, -1, 0])
    head = Calibrated.of({"weights": largest, "bias": largest[0]}, {}).head
    judged = Judgement.of_head(head, rows, labels, head, unanswered=0, positive=1)
    assert np.isfinite([judged.accuracy, judged.balanced_accuracy]).all()
    for array in ("weights", "bias"):
        with pytest.raises(ShapeMismatch, match=array):
            Calibrated.of({"weights": largest, "bias": largest[0], array: 2 * head.tensors[array]}, {})
