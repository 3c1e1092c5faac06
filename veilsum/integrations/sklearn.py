"""A scikit-learn classifier that is fitted with other members: its `fit` takes part in a round."""

from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from calibration import FFCStatistics, solve_ffc
from client_sdk import Member, Records, Result, Wanted
from protocol.errors import Misuse
from veilsum.integrations.linear import LinearHead


class SecureRidgeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped library
    """Ridge regression on one-hot labels and features of length 1, from everybody's sums.

    Without a round it is fitted to its own records alone, by the same mathematics, so that it can be compared, searched
    over and put into a pipeline before anybody else is asked. What comes before it in a pipeline must be the same for
    all members, and frozen.

    Copies and pickles are without the member, who holds keys. `sklearn.base.clone` shares it, but a clone takes part in no
    round: cross-validation, searches and other meta-estimators fit clones to parts of the records.

    Args:
        member: who takes part; enrolled, and open while `fit` runs. None fits locally.
        round_id: the round, 16 hexadecimal digits; goes with `member`.
        lineage: the member's name for these records: the same records, the same name.
        classes: all labels in the order that the members agreed on. A round needs it: a member may hold only some.
            None takes those in y, sorted. None of them twice.
        ridge: λ; None chooses it by generalised cross-validation. In a round its terms fix it.
        bias: whether to fit a constant. In a round its terms fix it.
        temperature: T of `predict_proba`, above 0. The scores are of ridge regression and no log-odds, so that at T = 1 the
            probabilities are much too even: records held out say which T suits.

    Attributes:
        classes_: (C,) labels, sorted, as all of scikit-learn expects them; scores and probabilities are in their order.
        head_: the fitted head, its columns in the order of `classes`.
        result_: the verified result of a round; None after a local fit.
        n_features_in_: dim.
    """

    classes_: npt.NDArray[Any]
    head_: LinearHead
    result_: Result | None
    n_features_in_: int
    _columns: npt.NDArray[np.intp]
    """(C,) the column of `head_` for each of `classes_`."""
    _cloned = False

    def __init__(
        self,
        member: Member | None = None,
        round_id: str | None = None,
        lineage: str = "main",
        *,
        classes: Any = None,
        ridge: float | None = None,
        bias: bool = True,
        temperature: float = 1.0,
    ) -> None:
        self.member = member
        self.round_id = round_id
        self.lineage = lineage
        self.classes = classes
        self.ridge = ridge
        self.bias = bias
        self.temperature = temperature

    def fit(self, X: Any, y: Any) -> Self:
        """Contribute X (n, dim) and y (n,) to the round, or fit them here.

        Where it raises, what was fitted before is left as it was.

        Raises:
            ValueError: unusable X or y, a label that `classes` has not, or one that it has twice.
            Misuse: a member without a round or the other way round, a round without `classes`, a round of other classes or
                features, before anything is contributed; a clone that would take part in a round.
            PeerFault, ClientError: as `Member.contribute`.
            CalibrationError: a row of zeros, which has no direction.
        """
        features, y = check_X_y(X, y, dtype=[np.float64, np.float32], estimator=self)
        check_classification_targets(y)
        self._check_round()
        given = np.unique(y) if self.classes is None else np.asarray(self.classes)
        result: Result | None = None
        names, columns = np.unique(given, return_index=True)
        if len(names) < len(given):
            raise ValueError(f"classes={given.tolist()[:20]} names a label twice: each has one column")
        if len(names) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {names}")
        labels = _indices(given, y)
        if self.member is not None and self.round_id is not None:
            maker = _maker(features, labels, len(given))
            said = self.member.contribute(self.round_id, maker, lineage=self.lineage)
            head, result = LinearHead.of(said), said
            dim, of_round = head.weights.shape
            _check_fits(dim, of_round, features, len(given))  # also of a round that was over before
        else:
            statistics = FFCStatistics(
                features.shape[1], len(given), bias=self.bias, normalise=True, track_records=False
            )
            statistics.update(features, labels)
            head = LinearHead.of(solve_ffc(statistics, self.ridge))
        validate_data(self, X, y, skip_check_array=True)  # keeps the number of features, and their names
        self.classes_, self._columns, self.head_, self.result_ = names, columns, head, result
        return self

    def _check_round(self) -> None:
        if self._cloned:
            raise Misuse(
                "a clone takes part in no round: cross-validation, searches and other meta-estimators fit clones to parts of "
                "the records, and a round would sum each for good. Compare by local fits, without member and round_id, "
                "then fit the estimator that you made yourself"
            )
        if (self.member is None) != (self.round_id is None):
            raise Misuse(
                "member and round_id go together; leave out both to fit locally. A copy or a pickle is without its member: "
                "give it by set_params(member=…)"
            )
        if self.member is not None and self.classes is None:
            raise Misuse(
                "a round needs classes=: every label, in the order that the members agreed on; you may hold only some"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "member": None}

    def __sklearn_clone__(self) -> Self:
        clone: Self = BaseEstimator.__sklearn_clone__(copy(self))
        if self.member is not None:
            clone.member, clone._cloned = self.member, True
        return clone

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores, (n, C), −∞ of classes it never answers; of two classes (n,), of the second above the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(n,) labels out of `classes_`."""
        best = self._scores(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """(n, C) softmax of the scores over the temperature; 0 for classes it never answers."""
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, not above 0")
        scores = self._scores(X)
        scores /= self.temperature
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        found: npt.NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return found

    def _scores(self, X: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        rows = X / np.where(lengths > 0, lengths, 1)  # a row of zeros says nothing: the bias answers
        scores: npt.NDArray[np.float64] = rows @ self.head_.weights + self.head_.bias
        scores[:, list(self.head_.unanswered)] = -np.inf
        return scores[:, self._columns]


def _maker(
    features: npt.NDArray[Any], labels: npt.NDArray[np.int64], classes: int
) -> Callable[[Wanted], Any]:
    """Makes what a round asks for, once that fits: what was contributed cannot be taken back."""

    def make(wanted: Wanted) -> Any:
        _check_fits(wanted.dim, wanted.classes, features, classes)
        return Records(features, labels, normalise=True)(wanted)

    return make


def _check_fits(dim: int | None, columns: int, features: npt.NDArray[Any], classes: int) -> None:
    """Refuse a round of other classes or features; `dim` None takes any."""
    if columns != classes:
        raise Misuse(f"the round is of {columns} classes, and you named {classes}")
    if dim not in {None, features.shape[1]}:
        raise Misuse(f"the round is of {dim} features, and X has {features.shape[1]}")


def _indices(given: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(n,) the place of each label among those given."""
    places = {label: index for index, label in enumerate(given.tolist())}
    if unknown := sorted({*y.tolist()} - {*places}, key=str):
        raise ValueError(f"labels {unknown[:5]} are not among classes={list(places)[:20]}")
    return np.array([places[label] for label in y.tolist()], dtype=np.int64)
