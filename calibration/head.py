"""A linear classifier's head: what every method of this package ends in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from calibration.errors import CalibrationError, ShapeMismatch
from calibration.rows import Array, Floats, Integers, as_array, as_features, check_rows, directions

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Head:
    """Weights whose scores, z @ weights + bias, are highest at the class of a record.

    z is scaled to length 1, unless a subclass maps features otherwise.
    """

    weights: Floats
    """(dim, C)."""
    bias: Floats | None
    """(C,), or None if there is none."""
    empty_classes: tuple[int, ...]
    """Classes without a record: `predict` never answers them."""
    centre: Floats | None = field(default=None, kw_only=True)
    """(dim,) m, which is taken off z before it is scaled to length 1 again; None for none."""

    @property
    def scales(self) -> bool:
        """Whether features of any length mean the same, because rows are scaled to length 1."""
        return True

    @property
    def dim(self) -> int:
        """Features that it takes."""
        return len(self.weights)

    @property
    def classes(self) -> int:
        """C."""
        return int(self.weights.shape[1])

    @property
    def tensors(self) -> dict[str, Floats]:
        """`weights` and, where there are some, `bias` and `centre`, contiguous: the arrays of a head's file."""
        named = {"weights": self.weights, "bias": self.bias, "centre": self.centre}
        return {name: np.ascontiguousarray(tensor) for name, tensor in named.items() if tensor is not None}

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """The (n, dim) float64 rows that the weights are applied to.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features; a row that is the centre.
        """
        return directions(self._checked(features, normalise=normalise), self.centre)

    def _checked(self, features: Array, *, normalise: bool) -> NDArray[Any]:
        matrix = as_features(features, self.dim)
        check_rows(matrix, normalise=normalise)
        return matrix

    def scores(self, features: Array, *, normalise: bool = False) -> Floats:
        """Scores of each class, (n, C) float64; they are not probabilities.

        Args:
            features: as `rows`.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features.
        """
        scores: Floats = self.rows(features, normalise=normalise) @ self.weights
        if self.bias is not None:
            scores += self.bias
        return scores

    def predict(self, features: Array, *, normalise: bool = False) -> Integers:
        """The class of highest score, (n,) int64; the lowest index among equals.

        Raises:
            CalibrationError: as `scores`.
        """
        scores = self.scores(features, normalise=normalise)
        # A column of zeros would beat every negative score.
        scores[:, list(self.empty_classes)] = -np.inf
        best: Integers = scores.argmax(axis=1).astype(np.int64, copy=False)
        return best

    def probabilities(self, features: Array, *, temperature: float = 1.0, normalise: bool = False) -> Floats:
        """softmax(scores/τ), (n, C); 0 for classes without records.

        They mean what they say for LDA and for logistic heads. Ridge scores need a temperature from held-out records
        first (`Reliability`; Guo et al. 2017).

        Raises:
            CalibrationError: as `scores`; a temperature that is not above 0.
        """
        _check_temperature(temperature)
        scores = self.scores(features, normalise=normalise) / temperature
        scores[:, list(self.empty_classes)] = -np.inf
        return np.exp(log_softmax(scores))

    def with_unit_columns(self) -> Head:
        """The head with w_c/‖w_c‖ for w_c, the bias divided alike (Fed3R: Fanì et al. 2024).

        Classes with many records have long columns; this takes the advantage from them without another round.
        """
        columns = self.weights if self.bias is None else np.vstack([self.weights, self.bias])
        norms = np.linalg.norm(columns, axis=0)
        norms[norms == 0] = 1
        return self._changed(self.weights / norms, None if self.bias is None else self.bias / norms)

    def with_prior(self, counts: Array, prior: Array, *, temperature: float = 1.0) -> Head:
        """The head for records of which a class makes up another share than it did where the head was fitted.

        A posterior p(c|z) becomes proportional to p(c|z)·π'_c/π_c (Saerens, Latinne, Decaestecker 2002), so a score s with
        p = softmax(s/τ) gains τ·log(π'_c/π_c). Classes without records stay as they are.

        Args:
            counts: (C,) records of each class that the head was fitted on; π_c = n_c/n.
            prior: (C,) of π'_c, above 0 where a class has records, in any unit.
            temperature: τ: 1 for LDA and logistic heads; of a ridge head `Reliability.temperature`.

        Raises:
            CalibrationError: as `parse_prior`; a temperature that is not above 0.
        """
        _check_temperature(temperature)
        present = as_array(counts).astype(np.float64)
        ratio = np.ones(len(present))
        np.divide(parse_prior(prior, present) * present.sum(), present, out=ratio, where=present > 0)
        gain: Floats = temperature * np.log(ratio)
        return self._changed(self.weights, gain if self.bias is None else self.bias + gain)

    def _changed(self, weights: Floats, bias: Floats | None) -> Self | Head:
        return replace(self, weights=weights, bias=bias)


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise CalibrationError(f"a temperature is above 0 and finite, not {temperature!r}")


def log_softmax(scores: Floats) -> Floats:
    """Logarithms of softmax over the last axis of (…, C) scores; −∞ stays."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def parse_prior(prior: Array | None, counts: Array) -> Floats:
    """Shares of the classes, (C,) float64 that add up to 1; 0 for classes without records.

    Args:
        prior: (C,) in any unit, or None for the shares in `counts`.
        counts: (C,) records of each class.

    Raises:
        ShapeMismatch: not one number a class.
        CalibrationError: a number that is negative or not finite, or not above 0 though the class has records.
    """
    present = as_array(counts).astype(np.float64)
    shares = present if prior is None else as_array(prior).astype(np.float64)
    if shares.shape != present.shape:
        raise ShapeMismatch(
            f"a prior has shape {shares.shape}; pass one number for each of {len(present)} classes"
        )
    if not np.isfinite(shares).all() or (shares < 0).any() or (shares[present > 0] == 0).any():
        raise CalibrationError(
            "a prior is finite, not negative, and above 0 for every class that has records"
        )
    held = np.where(present > 0, shares, 0.0)
    normalised: Floats = held / held.sum()
    return normalised
