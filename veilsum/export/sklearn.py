"""A head as a fitted scikit-learn classifier."""

from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from client_sdk import Result
from veilsum.calibration.head import log_softmax
from veilsum.export.linear import HeadSource, find_head, layer_of
from veilsum.protocol.errors import Misuse


class HeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped library
    """A head of any kind. It is fitted: the records behind it are not at hand.

    It works as the last step of a pipeline. Where scikit-learn fits a classifier, such as in `CalibratedClassifierCV`, pass
    `sklearn.frozen.FrozenEstimator(classifier)`.

    Args:
        temperature: T of `predict_proba`, above 0. None takes the head's own; without one T is 1, and a UserWarning says that these are
            no probabilities.

    Attributes:
        classes_: (C,) labels, sorted, as all of scikit-learn expects them; scores and probabilities are in their order.
        coef_: (C, dim) weights of the scores, for features as `Head.rows` maps them, such as scaled to length 1; of two classes (1, dim),
            the second's above the first's. With D random features it has D columns.
        intercept_: (C,), or (1,) of two classes; −∞ for classes that are never predicted.
        n_features_in_: dim.
        feature_names_in_: the study's columns, if it names any: scikit-learn refuses other names, and other orders.
    """

    def __init__(self, temperature: float | None = None) -> None:
        self.temperature = temperature

    @classmethod
    def of(cls, source: HeadSource, classes: Any = None) -> Self:
        """See `veilsum.export.to_sklearn`."""
        head = find_head(source)
        given = np.arange(head.head.classes) if classes is None else np.asarray(classes)
        names, columns = np.unique(given, return_index=True)
        if not len(names) == len(given) == head.head.classes:
            raise Misuse(f"the head has {head.head.classes} classes: pass classes= with one label for each")
        found = cls()
        if isinstance(source, Result):
            own, study = [*map(str, given.tolist())], source.spec.question.classes
            if {*own} == {*study} and own != [*study]:
                raise Misuse(f"classes=: pass the study's {len(study)} in its order: {', '.join(study[:20])}")
            if source.columns:
                found.feature_names_in_ = np.array(source.columns, object)
        weights, bias = (each[..., columns] for each in layer_of(head, 1.0))
        found.classes_, found.n_features_in_ = names, head.head.dim
        found._head, found._columns, found._bias = head, columns, bias
        found.coef_, found.intercept_ = weights.T, bias
        if len(names) == 2:
            found.coef_, found.intercept_ = np.diff(weights).T, np.diff(bias)
        return found

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's signature
        """Raise Misuse. scikit-learn takes only objects with this method for classifiers."""
        raise Misuse(
            "this classifier is fitted already, and can't be fitted again: pass sklearn.frozen.FrozenEstimator(classifier) where "
            "scikit-learn fits it"
        )

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores (n, C), −∞ for classes that are never predicted; of two classes (n,), the second's above the first's."""
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(n,) labels out of `classes_`."""
        places = self._class_scores(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[places]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """(n, C) softmax of the scores over the temperature; 0 for classes that are never predicted."""
        scores = self._class_scores(X)
        temperature = self._head.choose_temperature(self.temperature)
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, not above 0")
        return np.exp(log_softmax(scores / temperature))

    def _class_scores(self, X: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        scores = np.tile(self._bias, (len(X), 1))  # a row of zeros says nothing: the bias answers
        directed = X.any(axis=1)
        scores[directed] = self._head.scores(X[directed])[:, self._columns]
        return scores
