"""A member's statistics for any question: which records they name, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import FeaturesLattice, FFCStatistics, LayoutMismatch, SumsLattice
from calibration.collected import Collected
from calibration.errors import CalibrationError, LabelOutOfRange
from calibration.questions import QUESTIONS, Earlier, Question, Wish, ask, kind, question

RNG = np.random.default_rng(0)
FEATURES, LABELS = np.abs(RNG.normal(size=(30, 4))) + 0.1, RNG.integers(0, 3, 30)


def asked(name: str, **parameters: str | float | bool) -> Question:
    return question(name, ask(name, Wish(4, 3, parameters)).layout, b"c" * 32)


@pytest.mark.parametrize("name", ["ffc", "ffc-bias", "ccvr"])
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
        ("rff", {"size": 2.5, "bandwidth": 1.0}, "size of a rff round is int"),
        ("ccvr", {"axes": 2}, "no parameter axes"),
        ("rff", {"size": 3, "bandwidth": 1.0}, "even size"),
        ("rff", {"bandwidth": 1e-308}, "a bandwidth from 1e-3 to 1e3"),
        ("rff", {"bandwidth": 1e4}, "a bandwidth from 1e-3 to 1e3"),
        ("ccvr", {"norm_bound": 2.0}, "goes with unit=false"),
        ("ffc", {"publish": "all"}, "can't be published"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(name: str, parameters: dict[str, float], words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        ask(name, Wish(4, 3, parameters))


@pytest.mark.parametrize("name", ["ffc", "ccvr", "rff"])
def test_terms_of_another_question_are_refused(name: str) -> None:
    other = ask("ccvr" if name != "ccvr" else "ffc", Wish(4, 3)).layout
    with pytest.raises(CalibrationError):
        question(name, other).accumulator(SumsLattice(), normalise=True)


@pytest.mark.parametrize("bandwidth", [1e-308, 9e-4, 1.1e3])
def test_a_bandwidth_that_could_overflow_is_refused_before_any_record(bandwidth: float) -> None:
    layout = asked("rff", size=8, bandwidth=1.0).layout.having(bandwidth=bandwidth)
    with pytest.raises(CalibrationError, match="a bandwidth from 1e-3 to 1e3"):
        Collected(question("rff", layout, b"c" * 32), SumsLattice(), normalise=True)


@pytest.mark.parametrize("name", ["ffc", "ffc-bias", "rff", "ccvr", "mean"])
def test_a_layout_for_noise_goes_on_the_features_lattice_alone_and_no_other_does(name: str) -> None:
    for noisy in (False, True):
        if name == "mean" and not noisy:
            continue
        wish = Wish(4, 3, {"bandwidth": 1.0, "size": 8} if name == "rff" else {}, noisy=noisy)
        posed = question(name, ask(name, wish).layout, b"c" * 32)
        right, wrong = SumsLattice(), FeaturesLattice(12)
        if noisy:
            right, wrong = wrong, right  # type: ignore[assignment]
        assert posed.accumulator(right, normalise=True).records == 0
        with pytest.raises(LayoutMismatch, match=f"it does not go on the {wrong.name} lattice"):
            posed.accumulator(wrong, normalise=True)


@pytest.mark.parametrize("name", ["mean", "refine"])
def test_what_exists_under_noise_alone_is_not_asked_without(name: str) -> None:
    earlier = Earlier("ffc", None, None) if name == "refine" else None
    with pytest.raises(CalibrationError, match=f"a {name} round exists under noise alone"):
        ask(name, Wish(4, 3), earlier)


def test_features_are_not_centred_without_noise() -> None:
    mean = Earlier("mean", None, None)
    with pytest.raises(CalibrationError, match="centred under noise alone"):
        ask("ffc", Wish(4, 3), mean)
    layout = asked("ffc").layout.having(centre=True)
    with pytest.raises(LayoutMismatch, match="centred under noise alone"):
        question("ffc", layout, b"", {"centre": np.zeros(4)}).accumulator(SumsLattice(), normalise=True)
