"""A scikit-learn classifier that is fitted with other members: its `fit` takes part in a round."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from calibration import FFCStatistics, solve_ffc
from client_sdk import Member, Records, Result
from protocol.errors import Misuse
from veilsum.integrations.linear import LinearHead


class SecureRidgeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped library
    """Ridge regression on one-hot labels and features of length 1, from everybody's sums.

    Without a round it is fitted to its own records alone, by the same mathematics, so that it can be compared, searched
    over and put into a pipeline before anybody else is asked. What comes before it in a pipeline must be the same for
    all members, and frozen.

    Args:
        member: who takes part; enrolled, and open while `fit` runs. None fits locally.
        round_id: the round, 16 hexadecimal digits; goes with `member`.
        lineage: the member's name for these records: the same records, the same name.
        classes: all labels in the order that the members agreed on. A round needs it: a member may hold only some.
            None takes those in y, sorted.
        ridge: λ; None chooses it by generalised cross-validation. In a round its terms fix it.
        bias: whether to fit a constant. In a round its terms fix it.
        temperature: T of `predict_proba`. None takes what a reliability round has found, and 1 before one: the scores are of
            ridge regression and no log-odds, so that at T = 1 the probabilities are much too even.

    Attributes:
        classes_: (C,) labels.
        head_: the fitted head.
        result_: the verified result of a round; None after a local fit.
        n_features_in_: dim.
    """

    classes_: npt.NDArray[Any]
    head_: LinearHead
    result_: Result | None
    n_features_in_: int

    def __init__(
        self,
        member: Member | None = None,
        round_id: str | None = None,
        lineage: str = "main",
        *,
        classes: Any = None,
        ridge: float | None = None,
        bias: bool = True,
        temperature: float | None = None,
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

        Raises:
            ValueError: unusable X or y, a label that `classes` has not.
            Misuse: a member without a round or the other way round, a round without `classes`.
            PeerFault, ClientError: as `Member.contribute`.
            CalibrationError: a row of zeros, which has no direction.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        if (self.member is None) != (self.round_id is None):
            raise Misuse("member and round_id go together; leave out both to fit locally")
        if self.member is not None and self.classes is None:
            raise Misuse(
                "a round needs classes=: every label, in the order that the members agreed on; you may hold only some"
            )
        self.classes_ = np.unique(y) if self.classes is None else np.asarray(self.classes)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_}")
        labels = self._indices(y)
        if self.member is not None and self.round_id is not None:
            self.result_ = self.member.contribute(
                self.round_id, Records(X, labels, normalise=True), lineage=self.lineage
            )
            self.head_ = LinearHead.of(self.result_)
            if len(self.classes_) != self.head_.weights.shape[1]:
                raise Misuse(
                    f"the round is of {self.head_.weights.shape[1]} classes, and you named {len(self.classes_)}"
                )
            return self
        statistics = FFCStatistics(
            X.shape[1], len(self.classes_), bias=self.bias, normalise=True, track_records=False
        )
        statistics.update(X, labels)
        self.result_, self.head_ = None, LinearHead.of(solve_ffc(statistics, self.ridge))
        return self

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
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, not above 0")
        scores = self._scores(X)
        scores /= self.temperature or self.head_.temperature or 1.0
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
        return scores

    def _indices(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        places = {label: index for index, label in enumerate(self.classes_.tolist())}
        if unknown := sorted({*y.tolist()} - {*places}, key=str):
            raise ValueError(f"labels {unknown[:5]} are not among classes={list(places)[:20]}")
        return np.array([places[label] for label in y.tolist()], dtype=np.int64)
