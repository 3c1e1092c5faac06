"""A member's statistics for any question: which records they name, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import FeaturesLattice, FFCStatistics, LayoutMismatch, SumsLattice
from calibration.collected import Collected
from calibration.errors import CalibrationError, LabelOutOfRange
from calibration.layouts import ccvr_layout
from calibration.privacy import noisy_layout
from calibration.questions import QUESTIONS, Question, Wish, ask, kind, question

RNG = np.random.default_rng(0)
FEATURES, LABELS = np.abs(RNG.normal(size=(30, 4))) + 0.1, RNG.integers(0, 3, 30)


def asked(name: str, **parameters: str | float | bool) -> Question:
    return question(name, ask(name, Wish(4, 3, parameters)).layout, b"c" * 32)


@pytest.mark.parametrize("name", ["ffc", "folds", "counts", "ccvr"])
def test_records_have_one_name_whatever_is_asked(name: str) -> None:
    plain = FFCStatistics(4, 3, normalise=True)
    plain.update(FEATURES, LABELS)
    own = Collected(asked(name), SumsLattice(), normalise=True)
    for part in (slice(0, 7), slice(7, 30)):
        own.update(FEATURES[part], LABELS[part])
    assert (own.records_digest, own.record_digests) == (plain.records_digest, plain.record_digests)
    assert own.indicator().holds.tolist() == plain.indicator().holds.tolist()
    assert own.records == 30
    assert repr(own) == f"<Collected 30 records for a {name} round>"


def test_withheld_records_are_named_and_not_summed() -> None:
    own = Collected(asked("ffc"), SumsLattice(), withheld=(1,), normalise=True)
    plain = FFCStatistics(4, 3, normalise=True, withheld=(1,))
    for each in (own, plain):
        each.update(FEATURES, LABELS)
    np.testing.assert_array_equal(own.vector(SumsLattice()), plain.vector(SumsLattice()))
    assert own.record_digests == plain.record_digests
    with pytest.raises(LabelOutOfRange, match="0 to 2"):
        Collected(asked("ffc"), SumsLattice(), withheld=(3,))


def test_a_batch_that_is_refused_leaves_nothing() -> None:
    own = Collected(asked("ffc"), SumsLattice())
    with pytest.raises(CalibrationError, match="norm"):
        own.update(FEATURES, LABELS)
    assert (own.records, own.record_digests) == (0, b"")


def test_rows_without_direction_have_a_name_where_they_can_be_summed() -> None:
    own = Collected(asked("ccvr", unit=False, norm_bound=10.0), SumsLattice())
    own.update(np.vstack([FEATURES, np.zeros((1, 4))]), np.append(LABELS, 0))
    assert own.records == len(own.record_digests) // 16 == 31


def test_questions_are_known_by_name_alone() -> None:
    assert all(kind(name).name == name and kind(name).title and kind(name).learns for name in QUESTIONS)
    with pytest.raises(CalibrationError, match="it can ask ffc, "):
        kind("other")


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("folds", {"folds": 2.5}, "folds of a folds round is int"),
        ("rff", {"size": 3, "bandwidth": 1.0}, "even size"),
        ("rff", {"bandwidth": 1e-308}, "a bandwidth from 1e-3 to 1e3"),
        ("rff", {"bandwidth": 1e4}, "a bandwidth from 1e-3 to 1e3"),
        ("rff", {"axes": 2, "bandwidth": 1.0}, "name one that it rests on"),
        ("ccvr", {"norm_bound": 2.0}, "goes with unit=false"),
        ("ffc", {"publish": "all"}, "can't be published"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(name: str, parameters: dict[str, float], words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        ask(name, Wish(4, 3, parameters))


@pytest.mark.parametrize("name", ["ffc", "folds", "counts", "ccvr", "rff"])
def test_terms_of_another_question_are_refused(name: str) -> None:
    other = ask("counts" if name != "counts" else "ffc", Wish(4, 3)).layout
    with pytest.raises(CalibrationError):
        question(name, other).accumulator(SumsLattice(), normalise=True)


@pytest.mark.parametrize("bandwidth", [1e-308, 9e-4, 1.1e3])
def test_a_bandwidth_that_could_overflow_is_refused_before_any_record(bandwidth: float) -> None:
    layout = asked("rff", size=8, bandwidth=1.0).layout.having(bandwidth=bandwidth)
    with pytest.raises(CalibrationError, match="a bandwidth from 1e-3 to 1e3"):
        Collected(question("rff", layout, b"c" * 32), SumsLattice(), normalise=True)


@pytest.mark.parametrize("name", ["rff", "ccvr"])
def test_axes_are_orthonormal_or_refused_before_any_record(name: str) -> None:
    blocks = ccvr_layout(2, 3) if name == "ccvr" else noisy_layout(8, 3)
    wished = {"unit": True, "norm_bound": 1.0} if name == "ccvr" else {"size": 8, "bandwidth": 1.0}
    layout = blocks.having(dim=4, classes=3, axes=2, **wished)

    def collecting(axes: Any) -> Collected:
        lattice = SumsLattice() if name == "ccvr" else FeaturesLattice(12)
        return Collected(question(name, layout, b"c" * 32, {"axes": axes}), lattice, normalise=True)

    right, _ = np.linalg.qr(RNG.normal(size=(4, 2)))
    for axes in (right.T, right.T + 1e-8):
        own = collecting(axes)
        own.update(FEATURES, LABELS)
        assert own.records == 30
    skew = np.array([[1.0, 0, 0, 0], [1e-5, 1, 0, 0]])
    wrapping = np.array([[1, 16, 0, 0], [0, 0, 1, 16]], np.uint8)  # of norm² 257, which uint8 takes for 1
    unknown = np.full((2, 4), np.nan, np.float32)
    for axes in (2 * right.T, np.zeros((2, 4)), np.ones((2, 4)), skew, wrapping, unknown):
        with pytest.raises(LayoutMismatch, match=r"axes (are not orthonormal rows|is not finite float64)"):
            collecting(axes)
