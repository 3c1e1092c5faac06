import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from client_sdk import Records, Result
from tests.support.cli import CLASSES, DIM, records
from veilsum.calibration import FFCStatistics, RandomFeatures, solve_ffc
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.random_features import KernelHead
from veilsum.calibration.rows import Floats
from veilsum.export import to_sklearn
from veilsum.export.sklearn import HeadClassifier
from veilsum.protocol.errors import Misuse

DIGITS, LABELS = load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def fitted() -> HeadClassifier:
    statistics = FFCStatistics(64, 10, normalise=True)
    statistics.update(DIGITS[:1200], LABELS[:1200])
    return to_sklearn(Calibrated(solve_ffc(statistics, 0.5), temperature=0.05))


def test_ffc_is_ridge_on_unit_rows(fitted: HeadClassifier) -> None:
    theirs = make_pipeline(Normalizer(), RidgeClassifier(0.5, fit_intercept=False))
    theirs.fit(DIGITS[:1200], LABELS[:1200])
    # Theirs has targets of −1 and 1: an affine map of ours without a constant, so that answers rarely differ.
    assert (fitted.predict(DIGITS[1200:]) == theirs.predict(DIGITS[1200:])).mean() > 0.97
    assert fitted.score(DIGITS[1200:], LABELS[1200:]) > 0.85
    shares = fitted.predict_proba(DIGITS[:5])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares.argmax(axis=1), fitted.predict(DIGITS[:5]))
    kept = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(kept.predict_proba(DIGITS[:5]), shares)
    with pytest.raises(ValueError, match="temperature is 0, not above 0"):
        kept.set_params(temperature=0).predict_proba(DIGITS[:5])


def test_scikit_learn_takes_it_for_a_fitted_classifier(fitted: HeadClassifier) -> None:
    expected = fitted.predict(DIGITS[1200:])
    piped = make_pipeline(FunctionTransformer(lambda rows: rows / 16), fitted)
    np.testing.assert_array_equal(piped.predict(DIGITS[1200:] * 16), expected)
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted)).fit(DIGITS[:1200], LABELS[:1200])
    assert (calibrated.predict(DIGITS[1200:]) == expected).mean() > 0.9
    with pytest.raises(Misuse, match="FrozenEstimator"):
        fitted.fit(DIGITS, LABELS)
    with pytest.raises(NotFittedError):  # a clone has no head
        clone(fitted).predict(DIGITS)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_length_of_a_row_makes_no_difference(scale: float, fitted: HeadClassifier) -> None:
    np.testing.assert_allclose(fitted.decision_function(DIGITS * scale), fitted.decision_function(DIGITS))


def test_two_classes_have_one_score() -> None:
    statistics = FFCStatistics(64, 2, constant=True, normalise=True)
    statistics.update(DIGITS, LABELS // 5)
    ours = to_sklearn(Calibrated(solve_ffc(statistics), temperature=0.1), ["low", "high"])
    scores = ours.decision_function(DIGITS)
    assert (ours.coef_.shape, ours.intercept_.shape, scores.shape) == ((1, 64), (1,), (len(DIGITS),))
    np.testing.assert_allclose(Normalizer().transform(DIGITS) @ ours.coef_[0] + ours.intercept_, scores)
    np.testing.assert_array_equal(ours.classes_[(scores > 0).astype(int)], ours.predict(DIGITS))


def test_a_result_is_a_fitted_classifier(result: Result) -> None:
    features, labels = records(np.random.default_rng(1), 40)
    names = np.array(["b", "c", "a"])
    with pytest.warns(UserWarning, match="no temperature"):
        to_sklearn(result).predict_proba(features)
    judged = result.judge(Records(features, labels))
    for classes in (None, names):
        ours = to_sklearn(judged, classes)
        expected = judged.predict(features)
        np.testing.assert_array_equal(
            ours.predict(features), expected if classes is None else names[expected]
        )
        order = np.arange(CLASSES) if classes is None else np.argsort(names)
        np.testing.assert_allclose(ours.predict_proba(features), judged.probabilities(features)[:, order])
        assert ours.coef_.shape == (CLASSES, features.shape[1])
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        np.testing.assert_allclose(unit @ ours.coef_.T + ours.intercept_, ours.decision_function(features))
    for wrong in (["a", "b"], ["a", "b", "b"]):
        with pytest.raises(Misuse, match="one label for each"):
            to_sklearn(result, wrong)
    with pytest.raises(Misuse, match="in its order"):
        to_sklearn(result, result.spec.question.classes[::-1])
    bare = to_sklearn(judged.calibrated, names)
    np.testing.assert_array_equal(
        bare.predict_proba(features), to_sklearn(judged, names).predict_proba(features)
    )


@pytest.mark.parametrize("kind", ["linear", "random features", "power", "lengths"])
def test_every_kind_of_head_answers_as_itself(kind: str, centred: Calibrated, around_centre: Floats) -> None:
    head = centred.head
    weights, bias, centre = head.weights, head.bias, head.centre
    heads: dict[str, Head] = {
        "linear": head,
        "random features": KernelHead(
            np.random.default_rng(0).standard_normal((8, 4)),
            bias,
            (3,),
            RandomFeatures(DIM, 8, 1.0, b"a test"),
            centre=centre,
        ),
        "power": TukeyHead(weights, bias, (3,), 0.5, unit=True),
        "lengths": TukeyHead(weights, bias, (3,), None, unit=False),
    }
    given = Calibrated(heads[kind], temperature=0.2)
    ours, order = to_sklearn(given, [*"bdac"]), [2, 0, 3, 1]
    features = np.vstack([around_centre, np.zeros((1, DIM))])
    found = ours.decision_function(features)
    np.testing.assert_allclose(found[:-1], given.scores(around_centre)[:, order])
    assert bias is not None
    np.testing.assert_array_equal(found[-1], [bias[2], bias[0], -np.inf, bias[1]], "a row of zeros")
    mapped = given.head.rows(around_centre, normalise=given.head.scales)
    np.testing.assert_allclose(mapped @ ours.coef_.T + ours.intercept_, found[:-1])
    expected = given.head.probabilities(around_centre, temperature=0.2, normalise=given.head.scales)
    np.testing.assert_allclose(ours.predict_proba(around_centre), expected[:, order])
    assert ours.n_features_in_ == DIM
    assert pickle.loads(pickle.dumps(ours)).predict(features[-1:]) == ours.predict(features[-1:])


class Frame(np.ndarray):
    """An array with names of columns, as a data frame has."""

    columns = tuple(f"f{place}" for place in range(DIM))[::-1]


def test_named_columns_are_matched_by_name(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = records(np.random.default_rng(2), 40)
    monkeypatch.setattr(Result, "columns", Frame.columns[::-1])
    named = features[:, ::-1].copy().view(Frame)
    np.testing.assert_array_equal(result.predict(named), result.predict(features))
    np.testing.assert_allclose(result.scores(named), result.scores(features))
    assert to_sklearn(result).feature_names_in_.tolist() == [*Frame.columns[::-1]]
    monkeypatch.setattr(Frame, "columns", tuple("abcdef"))
    with pytest.raises(Misuse, match="the study's: missing"):
        result.predict(named)
