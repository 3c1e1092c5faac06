"""A member's statistics for any question: which records they name, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import FFCStatistics, SumsLattice
from calibration.collected import Collected
from calibration.errors import CalibrationError, LabelOutOfRange
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
