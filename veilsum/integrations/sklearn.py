"""A scikit-learn classifier that is fitted with other members: `fit` takes part in a run of a study."""

from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from client_sdk import Member, Records, Result
from client_sdk.errors import Declined
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.integrations.linear import LinearHead
from veilsum.protocol.errors import Misuse


class SecureRidgeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped library
    """Ridge regression on one-hot labels and features of length 1, from everybody's sums.

    Without a member it is fitted to its own records, by the same mathematics, so that it can be compared, searched over
    and put into a pipeline first. What comes before it in a pipeline must be the same for all members, and frozen.

    Copies and pickles leave out the member, who holds keys. `sklearn.base.clone` shares it, but a clone takes part in no
    run: cross-validation, searches and other meta-estimators fit clones to parts of the records, and a record can be
    summed once.

    Args:
        member: takes part; open while `fit` runs, with a policy that approves the study. None fits locally.
        period: take part in a run of this period; None for any.
        classes: all labels in the order of the study's classes. Needed with a member, who may hold only some of them.
            None takes those in y, sorted.
        ridge: λ; None chooses it by generalised cross-validation. A study fixes it.
        bias: whether to fit a constant. A study fixes it.
        temperature: T of `predict_proba`, above 0. Scores of ridge regression are not log-odds: choose T on a hold-out set.

    Attributes:
        classes_: (C,) labels, sorted, as all of scikit-learn expects them; scores and probabilities are in their order.
        head_: the fitted head, its columns in the order of `classes`.
        result_: the verified result of the run; None after a local fit.
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
        period: str | None = None,
        *,
        classes: Any = None,
        ridge: float | None = None,
        bias: bool = True,
        temperature: float = 1.0,
    ) -> None:
        self.member = member
        self.period = period
        self.classes = classes
        self.ridge = ridge
        self.bias = bias
        self.temperature = temperature

    def fit(self, X: Any, y: Any) -> Self:
        """Contribute X (n, dim) and y (n,) to the next run of an approved study, or fit them here.

        If it raises, an earlier fit stays as it was. Rows have no ids here: the whole of X counts as one record, which is
        summed once. Use `Member.join` with `Records(X, y, ids)` to contribute new records later.

        Raises:
            ValueError: unusable X or y, a label that `classes` lacks or has twice.
            Misuse: a member without `classes`, a result of another number of classes, or a clone with a member.
            PeerFault, ClientError: as `Member.join`.
            CalibrationError: a row of zeros, in a local fit.
        """
        features, y = check_X_y(X, y, dtype=[np.float64, np.float32], estimator=self)
        check_classification_targets(y)
        self._check_member()
        given = np.unique(y) if self.classes is None else np.asarray(self.classes)
        result: Result | None = None
        names, columns = np.unique(given, return_index=True)
        if len(names) < len(given):
            raise ValueError(f"classes={given.tolist()[:20]} names a label twice: each has one column")
        if len(names) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {names}")
        labels = _indices(given, y)
        if self.member is not None:
            runs = self.member.join(Records(features, labels), once=True, period=self.period)
            result = next(iter(runs), None)
            if result is None:
                raise Declined("the run ended without a result for this member")
            head = LinearHead.of(result)
            if head.weights.shape[1] != len(given):
                raise Misuse(
                    f"the study has {head.weights.shape[1]} classes, and classes= names {len(given)}"
                )
        else:
            statistics = FFCStatistics(features.shape[1], len(given), bias=self.bias, normalise=True)
            statistics.update(features, labels)
            head = LinearHead.of(solve_ffc(statistics, self.ridge))
        validate_data(self, X, y, skip_check_array=True)  # keeps the number of features, and their names
        self.classes_, self._columns, self.head_, self.result_ = names, columns, head, result
        return self

    def _check_member(self) -> None:
        if self._cloned:
            raise Misuse(
                "a clone takes part in no run: cross-validation, searches and other meta-estimators fit clones to parts of the "
                "records, and each record can be summed once. Compare local fits, without a member, then fit the original estimator"
            )
        if self.member is not None and self.classes is None:
            raise Misuse("a run needs classes=: every label in the order of the study's classes")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "member": None}

    def __sklearn_clone__(self) -> Self:
        clone: Self = BaseEstimator.__sklearn_clone__(copy(self))
        if self.member is not None:
            clone.member, clone._cloned = self.member, True
        return clone

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores (n, C), −∞ for classes that are never answered; of two classes (n,), the second's above the first's."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(n,) labels out of `classes_`."""
        best = self._scores(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """(n, C) softmax of the scores over the temperature; 0 for classes that are never answered."""
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


def _indices(given: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(n,) the place of each label among those given."""
    places = {label: index for index, label in enumerate(given.tolist())}
    if unknown := sorted({*y.tolist()} - {*places}, key=str):
        raise ValueError(f"labels {unknown[:5]} are not among classes={list(places)[:20]}")
    return np.array([places[label] for label in y.tolist()], dtype=np.int64)
