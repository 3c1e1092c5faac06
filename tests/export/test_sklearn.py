import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from client_sdk import Identity, Member, Policy, Records, Result
from client_sdk.store import Store
from tests.support.cli import CLASSES, DIM, PATIENCE_S, PERIOD, Consortium, records
from veilsum.export import to_sklearn
from veilsum.export.sklearn import SecureRidgeClassifier
from veilsum.protocol.errors import Misuse

EXEMPT = {
    "check_estimators_dtypes": "rounds its data to integers, one row of them to zeros, which have no direction"
}
"""Checks that don't apply, each with its reason."""


pytestmark = pytest.mark.filterwarnings("ignore:this head has no temperature")


@parametrize_with_checks([SecureRidgeClassifier()], expected_failed_checks=lambda _: EXEMPT)  # type: ignore[untyped-decorator] # an untyped library
def test_it_is_a_scikit_learn_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_local_fits_are_ridge_on_unit_rows() -> None:
    digits, labels = load_digits(return_X_y=True)
    ours = SecureRidgeClassifier(ridge=0.5, constant=False).fit(digits[:1200], labels[:1200])
    theirs = make_pipeline(Normalizer(), RidgeClassifier(0.5, fit_intercept=False)).fit(
        digits[:1200], labels[:1200]
    )
    # Theirs has targets of −1 and 1: an affine map of ours without a constant, so that answers rarely differ.
    assert (ours.predict(digits[1200:]) == theirs.predict(digits[1200:])).mean() > 0.97
    assert ours.result_ is None
    searched = GridSearchCV(SecureRidgeClassifier(), {"constant": [False, True]}, cv=3).fit(digits, labels)
    assert searched.best_score_ > 0.85
    shares = ours.set_params(temperature=0.05).predict_proba(digits[:5])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares.argmax(axis=1), ours.predict(digits[:5]))
    with pytest.raises(ValueError, match="temperature is 0, not above 0"):
        ours.set_params(temperature=0).predict_proba(digits[:5])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_length_of_a_row_makes_no_difference(scale: float) -> None:
    digits, labels = load_digits(return_X_y=True)
    fitted = SecureRidgeClassifier().fit(digits, labels)
    np.testing.assert_allclose(fitted.decision_function(digits * scale), fitted.decision_function(digits))


def test_fit_takes_part_in_a_run(consortium: Callable[..., Consortium]) -> None:
    c = consortium()
    names = np.array([f"class {index}" for index in (2, 0, 1)])  # in no alphabetical order
    run, joins = c.run(), [c.join(member) for member in c.members[1:]]
    data = dict(np.load(c.files[0]))
    policy = Policy(admin_key=c.admin, approved={c.approval})
    with Member(c.cli.url, Identity.load(c.folder / "m0"), policy) as member:
        for wrong in ([*names, "more"], ["class-1", "class-0", "class-2"]):
            with pytest.raises(Misuse, match="pass the study's 3 in its order: class-0, class-1, class-2"):
                SecureRidgeClassifier(member, PERIOD, classes=wrong).fit(
                    data["features"], np.array(wrong)[data["labels"]]
                )
        assert member.ledger() == ()  # nothing is spent
        mine = data["labels"] < 2  # this member holds two of the three classes
        classifier = SecureRidgeClassifier(member, PERIOD, classes=names, temperature=0.1)
        classifier.fit(data["features"][mine], names[data["labels"][mine]])
        assert [each.result(PATIENCE_S).code for each in joins] == [0, 0]
        assert run.result(PATIENCE_S).code == 0
    assert classifier.result_ is not None
    classifier.result_.verify(bytes.fromhex(c.admin))
    assert Store(c.folder / "m0").unexported_folders() == ()
    assert classifier.result_.counted
    test = dict(np.load(c.test))
    assert classifier.score(test["features"], names[test["labels"]]) > 0.9
    np.testing.assert_array_equal(
        classifier.predict(test["features"]), names[classifier.result_.predict(test["features"])]
    )
    assert classifier.classes_.tolist() == sorted(names)
    shares = classifier.predict_proba(test["features"])
    np.testing.assert_array_equal(
        classifier.classes_[shares.argmax(axis=1)], classifier.predict(test["features"])
    )
    kept = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(kept.predict_proba(test["features"]), shares)
    assert (kept.member, classifier.member) == (None, member)
    with pytest.raises(Misuse):
        SecureRidgeClassifier(_Again(classifier.result_), classes=[*names, "more"]).fit(
            data["features"], names[data["labels"]]
        )


def test_probabilities_at_a_temperature(result: Result) -> None:
    features, labels = records(np.random.default_rng(0), 20)
    classifier = SecureRidgeClassifier(_Again(result), "00" * 8, classes=range(CLASSES), temperature=0.1)
    sure = classifier.fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(sure, result.probabilities(features, temperature=0.1), rtol=1e-9)
    even = classifier.set_params(temperature=1.0).predict_proba(features)
    assert even.max() < sure.max()


def test_a_result_is_a_fitted_classifier(result: Result) -> None:
    features, labels = records(np.random.default_rng(1), 40)
    names = np.array(["b", "c", "a"])
    with pytest.warns(UserWarning, match="no temperature"):
        to_sklearn(result).predict_proba(features)
    judged = result.judge(Records(features, labels))
    for classes in (None, names):
        ours = to_sklearn(judged, classes)
        assert ours.result_ is judged
        expected = judged.predict(features)
        np.testing.assert_array_equal(
            ours.predict(features), expected if classes is None else names[expected]
        )
        order = np.arange(CLASSES) if classes is None else np.argsort(names)
        np.testing.assert_allclose(ours.predict_proba(features), judged.probabilities(features)[:, order])
        assert ours.coef_.shape == (CLASSES, features.shape[1])
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        np.testing.assert_allclose(unit @ ours.coef_.T + ours.intercept_, ours.decision_function(features))
    with pytest.raises(Misuse, match="one label for each"):
        to_sklearn(result, ["a", "b"])
    with pytest.raises(Misuse, match="one label for each"):
        to_sklearn(result, ["a", "b", "b"])
    bare = to_sklearn(judged.calibrated, names)
    np.testing.assert_array_equal(
        bare.predict_proba(features), to_sklearn(judged, names).predict_proba(features)
    )
    assert bare.result_ is None


class Frame(np.ndarray):
    """An array with names of columns, as a data frame has."""

    columns = tuple(f"f{place}" for place in range(DIM))[::-1]


def test_named_columns_are_matched_by_name(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = records(np.random.default_rng(2), 40)
    monkeypatch.setattr(Result, "columns", Frame.columns[::-1])
    named = features[:, ::-1].copy().view(Frame)
    expected = result.predict(features)
    np.testing.assert_array_equal(result.predict(named), expected)
    np.testing.assert_allclose(result.scores(named), result.scores(features))
    member = _Again(result)
    classifier = SecureRidgeClassifier(member, classes=range(CLASSES)).fit(named, labels)
    np.testing.assert_array_equal(classifier.predict(named), expected)
    shown = to_sklearn(result)
    assert shown.feature_names_in_.tolist() == [*Frame.columns[::-1]]
    np.testing.assert_allclose(classifier.coef_, shown.coef_[:, ::-1])
    monkeypatch.setattr(Frame, "columns", tuple("abcdef"))
    with pytest.raises(Misuse, match="the study's: missing"):
        result.predict(named)


def test_labels_are_in_the_study_s_order(result: Result) -> None:
    with pytest.raises(Misuse, match="in its order"):
        to_sklearn(result, result.spec.question.classes[::-1])


def test_what_fails_leaves_what_was_fitted() -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    classifier = SecureRidgeClassifier().fit(X, y)
    before = vars(classifier).copy()
    with pytest.raises(ValueError, match="names a label twice"):
        classifier.set_params(classes=[0, 1, 1]).fit(X[:, :3], y)
    assert vars(classifier) == before | {"classes": [0, 1, 1]}
    assert classifier.predict(X).shape == (30,)


def test_copies_are_without_the_member_and_clones_take_part_in_no_run(tmp_path: Path) -> None:
    identity = Identity.create(tmp_path / "a", "a")
    with Member("http://127.0.0.1:9", identity, Policy(admin_key=identity.public)) as member:
        ours = SecureRidgeClassifier(member, PERIOD, classes=[0, 1])
        for again in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert (again.member, again.period) == (None, PERIOD)
        assert clone(ours).get_params() == ours.get_params()
        for cloned in (clone(ours), clone(clone(ours)), pickle.loads(pickle.dumps(clone(ours)))):
            with pytest.raises(Misuse):
                cloned.fit(np.eye(4), [0, 1, 0, 1])
        with pytest.raises(Misuse):
            cross_val_score(ours, np.eye(8), np.arange(8) % 2, cv=2, error_score="raise")
    assert clone(SecureRidgeClassifier()).fit(np.eye(4), [0, 1, 0, 1]).result_ is None


class _Again(Member):
    """A member whose `join` yields a given result."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def join(self, *_: Any, **__: Any) -> Any:
        return iter([self._result])


def test_wrong_use_says_what_to_do() -> None:
    features, labels = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(Misuse):
        SecureRidgeClassifier(_Again(None)).fit(features, labels)
    with pytest.raises(ValueError, match=r"labels \[1\] are not among classes=\[0, 7\]"):
        SecureRidgeClassifier(classes=[0, 7]).fit(features, labels)
