"""A linear classifier's head: what every method of this package ends in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from calibration.errors import CalibrationError, ShapeMismatch
from calibration.exact_products import exact_products
from calibration.rows import Array, Floats, Integers, as_array, as_features, check_rows, unit_rows


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
        """`weights` and, with a bias, `bias`, contiguous: the arrays of a head's file."""
        named = {"weights": self.weights} | ({} if self.bias is None else {"bias": self.bias})
        return {name: np.ascontiguousarray(tensor) for name, tensor in named.items()}

    def rows(self, features: Array, *, normalise: bool = False, total: bool = False) -> Floats:
        """The (n, dim) float64 rows that the weights are applied to.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch.
            normalise: accept rows of any length.
            total: under noise: a row that a map leaves without direction becomes the first unit vector (`unit_rows`), and no
                row's numbers depend on the rows beside it (`exact_products`).

        Raises:
            CalibrationError: as `FFCStatistics.update` for features.
        """
        del total
        matrix = as_features(features, len(self.weights))
        check_rows(matrix, normalise=normalise)
        rows, _ = unit_rows(matrix)
        return rows

    def scores(self, features: Array, *, normalise: bool = False, total: bool = False) -> Floats:
        """Scores of each class, (n, C) float64; they are not probabilities.

        Args:
            features: as `rows`.
            normalise: accept rows of any length.
            total: as `rows`.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features.
        """
        rows = self.rows(features, normalise=normalise, total=total)
        scores: Floats = exact_products(rows, self.weights) if total else rows @ self.weights
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


LARGEST_WEIGHT = 1e6


def check_weights(head: Head) -> None:
    """Refuse a head that answers no class, or whose scores could overflow: what is no number has no bound, and no noise would cover it.

    Raises:
        CalibrationError: a weight beyond `LARGEST_WEIGHT`; no class left.
    """
    largest = float(np.max([np.abs(tensor).max(initial=0) for tensor in head.tensors.values()]))
    if not largest <= LARGEST_WEIGHT or len(head.empty_classes) >= head.classes:
        raise CalibrationError(
            f"a head with a weight of {largest:g} and {head.classes - len(head.empty_classes)} classes to answer can't be "
            f"refined: weights are {LARGEST_WEIGHT:g} at most, and one class is left"
        )


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
