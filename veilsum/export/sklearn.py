"""A scikit-learn classifier that is fitted with other members: `fit` takes part in a run of a study."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from client_sdk import Member, Records, Result
from client_sdk.errors import Declined
from client_sdk.records import match_columns
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.head import log_softmax
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import unit_rows
from veilsum.export.linear import HeadSource, layer_of, linear_head
from veilsum.protocol.errors import Misuse


class SecureRidgeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped library
    """Ridge regression on one-hot labels and features of length 1, from the sums of all members.

    Without a member it is fitted to its own records, by the same mathematics, so that it can be compared, searched over
    and put into a pipeline first. What comes before it in a pipeline must be the same for all members, and frozen.

    Copies and pickles leave out the member, which holds keys. `sklearn.base.clone` shares it, but a clone takes part in no
    run: cross-validation, searches and other meta-estimators fit clones to parts of the records, and a record can be
    summed once.

    Args:
        member: takes part; open while `fit` runs, with a policy that approves the study. None fits locally.
        period: take part in a run of this period; None for any.
        classes: all labels in the order of the study's classes. Needed with a member, which may hold only some of them.
            None takes those in y, sorted.
        ridge: λ; None chooses it by generalised cross-validation. A study fixes it.
        constant: whether to fit a constant. A study fixes it.
        temperature: T of `predict_proba`, above 0. Scores of ridge regression are not log-odds: choose T on a hold-out set. None takes
            the head's own; without one T is 1, and a UserWarning says that these are no probabilities.

    Attributes:
        classes_: (C,) labels, sorted, as all of scikit-learn expects them; scores and probabilities are in their order.
        head_: the fitted head, its columns in the order of `classes`.
        coef_: (C, dim) weights of the scores, for features scaled to length 1; of two classes (1, dim), the second's above the first's.
        intercept_: (C,), or (1,) of two classes; −∞ for classes that are never predicted.
        result_: the verified result that the head is from; None after a local fit.
        n_features_in_: dim.
        feature_names_in_: names of X's columns, if it has any.
    """

    classes_: npt.NDArray[Any]
    head_: Calibrated
    result_: Result | None
    n_features_in_: int
    _columns: npt.NDArray[np.intp]
    """(C,) the column of `head_` for each of `classes_`."""
    _rows: list[int] | None = None
    """(dim,) the row of `head_` for each column of X; None if both stand in one order."""
    _cloned = False

    def __init__(
        self,
        member: Member | None = None,
        period: str | None = None,
        *,
        classes: Any = None,
        ridge: float | None = None,
        constant: bool = True,
        temperature: float | None = None,
    ) -> None:
        self.member = member
        self.period = period
        self.classes = classes
        self.ridge = ridge
        self.constant = constant
        self.temperature = temperature

    def fit(self, X: Any, y: Any) -> Self:
        """Contribute X (n, dim) and y (n,) to the next run of an approved study, or fit them here.

        If it raises, an earlier fit stays as it was. Rows have no ids here: the whole of X counts as one record, which is
        summed once. Use `Member.join` with `Records(X, y, ids)` to contribute new records later.

        Raises:
            ValueError: unusable X or y, a label that `classes` lacks or has twice.
            Misuse: a member without `classes`, `classes` of another number or order than the study's, or a clone with a member.
            PeerFault, ClientError: as `Member.join`.
            CalibrationError: a row of zeros, in a local fit.
        """
        features, y = check_X_y(X, y, dtype=[np.float64, np.float32], estimator=self)
        check_classification_targets(y)
        self._check_member()
        given = np.unique(y) if self.classes is None else np.asarray(self.classes)
        result: Result | None = None
        names, columns = np.unique(given, return_index=True)
        rows: list[int] | None = None
        if len(names) < len(given):
            raise ValueError(f"classes={given.tolist()[:20]} names a label twice: each has one column")
        if len(names) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {names}")
        labels = _label_indices(given, y)
        if self.member is not None:
            own = tuple(map(str, given.tolist()))
            records = _Numbered(features, labels, columns=getattr(X, "columns", ()), names=own)
            # To its end: then the member knows that its caller has the result.
            runs = [*self.member.join(records, once=True, period=self.period)]
            result = runs[0] if runs else None
            if result is None:
                raise Declined("the run ended without a result for this member")
            records.index_labels(
                result.spec.question.classes
            )  # a run that was answered before looks at no records
            if records.columns and result.columns:
                rows = match_columns(result.columns, records.columns, "those of X")
            head = linear_head(result)
        else:
            statistics = FFCStatistics(features.shape[1], len(given), constant=self.constant, normalise=True)
            statistics.update(features, labels)
            head = linear_head(solve_ffc(statistics, self.ridge))
        validate_data(self, X, y, skip_check_array=True)  # keeps the number of features, and their names
        self.classes_, self._columns, self._rows = names, columns, rows
        self.head_, self.result_ = head, result
        return self

    @classmethod
    def of(cls, source: HeadSource, classes: Any = None) -> Self:
        """See `veilsum.export.to_sklearn`."""
        head = linear_head(source)
        count = head.head.classes
        found = cls(classes=range(count) if classes is None else classes)
        names, columns = np.unique(np.asarray(found.classes), return_index=True)
        if len(names) != count or len(names) < len(found.classes):
            raise Misuse(f"the head has {count} classes: pass classes= with one label for each")
        result = source if isinstance(source, Result) else None
        if result is not None:
            _check_order([*map(str, found.classes)], result.spec.question.classes)
        found.classes_, found._columns, found.head_, found.result_ = names, columns, head, result
        found.n_features_in_ = head.head.dim
        if result is not None and result.columns:
            found.feature_names_in_ = np.array(
                result.columns, object
            )  # scikit-learn refuses other names, and other orders
        return found

    @property
    def coef_(self) -> npt.NDArray[np.float64]:
        return self._linear_weights()[0]

    @property
    def intercept_(self) -> npt.NDArray[np.float64]:
        return self._linear_weights()[1]

    def _linear_weights(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        weights, bias = (each[..., self._columns] for each in self._make_layer())
        if len(self.classes_) == 2:
            weights, bias = weights[:, 1:] - weights[:, :1], bias[1:] - bias[:1]
        return weights.T, bias

    def _make_layer(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return weights (dim, C), in the order of X's columns, and bias (C,)."""
        weights, bias = layer_of(self.head_, 1.0)
        return weights if self._rows is None else weights[self._rows], bias

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
        """Scores (n, C), −∞ for classes that are never predicted; of two classes (n,), the second's above the first's."""
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(n,) labels out of `classes_`."""
        best = self._class_scores(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """(n, C) softmax of the scores over the temperature; 0 for classes that are never predicted."""
        scores = self._class_scores(X)
        temperature = self.head_.choose_temperature(self.temperature)
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, not above 0")
        return np.exp(log_softmax(scores / temperature))

    def _class_scores(self, X: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        rows, _ = unit_rows(X, total=True)
        rows[~X.any(axis=1)] = 0  # a row of zeros says nothing: the bias answers
        weights, bias = self._make_layer()
        scores: npt.NDArray[np.float64] = rows @ weights + bias
        return scores[:, self._columns]


@dataclass(frozen=True, repr=False, eq=False)
class _Numbered(Records):
    """Records whose labels are numbered as `names`; looked at before a run takes them."""

    names: tuple[str, ...] = ()

    def index_labels(self, classes: Sequence[str]) -> npt.NDArray[np.int64]:
        """As of `Records`; Misuse for names of another number, or the same ones in another order, than the study's."""
        _check_order(self.names, classes)
        return super().index_labels(classes)


def _check_order(names: Sequence[str], classes: Sequence[str]) -> None:
    permuted = {*names} == {*classes} and [*names] != [*classes]
    if permuted or len(names) != len(classes):
        raise Misuse(
            f"classes= names {len(names)} classes; pass the study's {len(classes)} in its order: {', '.join(classes[:20])}"
        )


def _label_indices(given: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(n,) the place of each label among those given."""
    places = {label: index for index, label in enumerate(given.tolist())}
    if unknown := sorted({*y.tolist()} - {*places}, key=str):
        raise ValueError(f"labels {unknown[:5]} are not among classes={list(places)[:20]}")
    return np.array([places[label] for label in y.tolist()], dtype=np.int64)
