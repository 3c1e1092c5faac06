"""A linear classifier's head: what every method of this package ends in."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import CalibrationError, ShapeMismatch
from veilsum.calibration.rows import (
    Array,
    Floats,
    Integers,
    as_array,
    as_features,
    check_rows,
    row_sums,
    unit_directions,
)


@dataclass(frozen=True, repr=False, eq=False)
class Head:
    """A linear classifier: it predicts the class with the highest score, z @ weights + bias.

    z are features scaled to length 1, unless a subclass maps features otherwise.

    Attributes:
        weights: (dim, C).
        bias: (C,), or None.
        empty_classes: classes that `predict` never predicts, because they have no records.
        centre: (dim,) m, subtracted from z before it is scaled to length 1 again; or None.
    """

    weights: Floats
    bias: Floats | None
    empty_classes: tuple[int, ...]
    centre: Floats | None = field(default=None, kw_only=True)

    @property
    def scales(self) -> bool:
        """Whether the length of features makes no difference, because rows are scaled to length 1."""
        return True

    @property
    def dim(self) -> int:
        """Features per record."""
        return len(self.weights)

    @property
    def classes(self) -> int:
        return int(self.weights.shape[1])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, dim {self.dim}, classes {self.classes}>"

    @property
    def tensors(self) -> dict[str, Floats]:
        """`weights` and, unless None, `bias` and `centre`, contiguous: the arrays of a head's file."""
        named = {"weights": self.weights, "bias": self.bias, "centre": self.centre}
        return {name: np.ascontiguousarray(tensor) for name, tensor in named.items() if tensor is not None}

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """Map (n, dim) features to the float64 rows that the weights are applied to.

        With `normalise`, rows of any length are accepted. Raises as `FFCStatistics.update` for features, and for a row that equals the centre.
        """
        return unit_directions(self._check_features(features, normalise=normalise), self.centre)

    def _check_features(self, features: Array, *, normalise: bool) -> NDArray[np.floating]:
        matrix = as_features(features, self.dim)
        check_rows(matrix, normalise=normalise)
        return matrix

    def scores(self, features: Array, *, normalise: bool = False) -> Floats:
        """Scores of each class, (n, C) float64; they are not probabilities. Arguments and errors as `rows`."""
        scores: Floats = self.rows(features, normalise=normalise) @ self.weights
        if self.bias is not None:
            scores += self.bias
        return scores

    def answer_scores(self, features: Array, *, normalise: bool = False) -> Floats:
        """Scores of each class, (n, C); −∞ for classes that are never predicted. Arguments and errors as `rows`."""
        scores = self.scores(features, normalise=normalise)
        # A column of zeros would beat every negative score.
        scores[:, list(self.empty_classes)] = -np.inf
        return scores

    def predict(self, features: Array, *, normalise: bool = False) -> Integers:
        """The class with the highest score, (n,) int64; the lowest index among equals. Arguments and errors as `rows`."""
        scores = self.answer_scores(features, normalise=normalise)
        best: Integers = scores.argmax(axis=1).astype(np.int64, copy=False)
        return best

    def probabilities(self, features: Array, *, temperature: float = 1.0, normalise: bool = False) -> Floats:
        """softmax(scores/τ), (n, C); 0 for classes without records.

        LDA and logistic heads are calibrated at τ = 1. Ridge scores need a temperature from a hold-out set (`Reliability`; Guo et al. 2017).

        Raises:
            CalibrationError: as `rows`; a temperature that is not above 0.
        """
        _check_temperature(temperature)
        return np.exp(log_softmax(self.answer_scores(features, normalise=normalise) / temperature))

    def with_unit_columns(self) -> "Head":
        """The head with w_c/‖w_c‖ in place of w_c, the bias divided alike (Fed3R: Fanì et al. 2024).

        Classes with many records have long columns; this takes that advantage from them without another round.
        """
        columns = self.weights if self.bias is None else np.vstack([self.weights, self.bias])
        norms = np.linalg.norm(columns, axis=0)
        norms[norms == 0] = 1
        return self.with_weights(self.weights / norms, None if self.bias is None else self.bias / norms)

    def with_prior(self, counts: Array, prior: Array, *, temperature: float = 1.0) -> "Head":
        """Adapt the head to records with other class shares than those it was fitted to.

        A posterior p(c|z) becomes proportional to p(c|z)·π'_c/π_c (Saerens, Latinne, Decaestecker 2002), so a score s with
        p = softmax(s/τ) gains τ·log(π'_c/π_c). Classes without records stay as they are.

        Args:
            counts: (C,) records of each class that the head was fitted on; π_c = n_c/n.
            prior: (C,) of π'_c, above 0 where a class has records, in any unit.
            temperature: τ: 1 for LDA and logistic heads; for a ridge head `Reliability.temperature`.

        Raises:
            ShapeMismatch: counts or a prior of another length.
            CalibrationError: a number that is negative or not finite, or 0 for a class with records; a temperature that is not above 0.
        """
        _check_temperature(temperature)
        present = as_array(counts).astype(np.float64)
        shares = as_array(prior).astype(np.float64)
        for name, values in ("counts", present), ("a prior", shares):
            if values.shape != (self.classes,):
                raise ShapeMismatch(
                    f"{name}: got shape {values.shape}, expected one number per class, ({self.classes},)"
                )
            if not np.isfinite(values).all() or (values < 0).any():
                raise CalibrationError(f"{name}: expected numbers that are finite and not negative")
        held = present > 0
        if (shares[held] == 0).any():
            raise CalibrationError("a prior: expected a number above 0 for every class that has records")
        gain = np.zeros(self.classes)
        before, after = (values[held] / values[held].sum() for values in (present, shares))
        gain[held] = temperature * np.log(after / before)
        return self.with_weights(self.weights, gain if self.bias is None else self.bias + gain)

    def with_weights(self, weights: Floats, bias: Floats | None) -> "Head":
        """A head with other weights that maps features the same way."""
        return Head(weights, bias, self.empty_classes, centre=self.centre)


def find_empty_classes(counts: NDArray[Any]) -> tuple[int, ...]:
    """Return the classes without records, from (C,) counts."""
    return tuple(np.flatnonzero(counts == 0).tolist())


def log_softmax(scores: Floats) -> Floats:
    """Logarithms of softmax over the last axis of (…, C) scores; −∞ stays."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    logs: Floats = shifted - np.log(row_sums(np.exp(shifted)))[..., None]
    return logs


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise CalibrationError(f"a temperature is above 0 and finite, not {temperature!r}")
