"""CCVR's head: virtual features drawn from the classes' Gaussians, and a head trained on them.

Luo et al. 2021, algorithm 1, draws M_c features of class c from N(μ_c, Σ_c) and retrains the head on them by cross-entropy. Their
§5.1 applies a ReLU and Tukey's transformation x ↦ x^β, β = ½, before the re-training; the algorithm omits the step.

Yang et al. 2021 ("Free Lunch for Few-shot Learning") use it to bring features nearer to Gaussians before they fit and draw. Here
it comes after the draw, and the head applies it to real features too. It suits features that are not negative; others become 0.
`power=None` leaves it out.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from veilsum.calibration.errors import CalibrationError, NoRecords
from veilsum.calibration.head import Head
from veilsum.calibration.logistic import fit_logistic
from veilsum.calibration.rows import Array, Floats, Integers, as_features, directions, finite_rows

FLOOR = 1e-6
"""Eigenvalues of a class's covariance are raised to this share of their mean. With n_c ≤ l records, most are 0 or, by rounding, below."""


class Gaussians(Protocol):
    """What virtual features are drawn from: `CCVRStatistics` or `NoisyGaussians`. A class with count 0 is left out."""

    @property
    def dim(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def counts(self) -> Integers: ...
    def mean(self, label: int) -> Floats: ...
    def covariance(self, label: int) -> Floats: ...
    def shared_covariance(self) -> Floats: ...


@dataclass(frozen=True, eq=False)
class TukeyHead(Head):
    """A head on x^β of the positive part of features, which are not scaled to length 1.

    Attributes:
        power: β; None for features as they are.
        unit: scale features to length 1 first, because the statistics were of such features.
    """

    power: float | None
    unit: bool = False

    @property
    def scales(self) -> bool:
        return self.unit

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """max(features, 0)^β, (n, dim) float64. With `normalise`, rows are scaled to length 1 first."""
        if normalise or self.unit:
            return tukey(directions(self._checked(features, normalise=normalise), self.centre), self.power)
        return tukey(finite_rows(as_features(features, self.dim)), self.power)

    def replaced(self, weights: Floats, bias: Floats | None) -> "TukeyHead":
        return replace(self, weights=weights, bias=bias)


def tukey(features: Floats, power: float | None, out: Floats | None = None) -> Floats:
    """max(features, 0)^power; 1 is a ReLU alone, None leaves features as they are (Tukey 1977, "ladder of powers").

    `out`, which may be `features`, receives the result.
    """
    if power is None:
        return features
    raised: Floats = np.maximum(features, 0, out=out)
    raised **= power
    return raised


def positive_definite(covariance: Floats, floor: float = FLOOR) -> tuple[Floats, Floats]:
    """Eigenvalues (l,) of a covariance, raised to at least floor times their mean, and eigenvectors (l, l).

    Of all matrices whose eigenvalues reach the floor, QDQᵀ is the nearest in the Frobenius norm (Higham 1988).
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values, floor * max(float(values.mean()), 0.0)), vectors


def virtual_features(
    statistics: Gaussians, per_class: int, rng: np.random.Generator
) -> tuple[Floats, Integers]:
    """Draw M features from the Gaussian of each class that has records; a class of one record takes the shared covariance.

    Equal generators draw equal features on one machine.

    Returns:
        (n, l) float64 and (n,) labels, class by class.

    Raises:
        NoRecords: the statistics are empty, or no class has two records.
    """
    counts = statistics.counts
    held = np.flatnonzero(counts)
    if not len(held):
        raise NoRecords("the statistics hold no records: update or add sums before drawing")
    if per_class < 1:
        raise CalibrationError(f"{per_class} virtual features per class: draw at least one")
    shared = statistics.shared_covariance() if (counts == 1).any() else None
    # One array, filled class by class: at 100 of each of 100 classes every copy of it is 100 MB.
    features = np.empty((len(held), per_class, statistics.dim))
    for label, drawn in zip(held.tolist(), features, strict=True):
        covariance = shared if shared is not None and counts[label] == 1 else statistics.covariance(label)
        values, vectors = positive_definite(covariance)
        # By the symmetric root, which is continuous in Σ where eigenvectors are not: sums a rounding apart draw alike.
        draws = (rng.standard_normal(drawn.shape) @ vectors) * np.sqrt(values)
        np.add(draws @ vectors.T, statistics.mean(label), out=drawn)
    return features.reshape(-1, statistics.dim), np.repeat(held, per_class)


def solve_ccvr(
    statistics: Gaussians,
    rng: np.random.Generator,
    *,
    per_class: int = 100,
    power: float | None = 0.5,
    unit: bool = False,
    centre: Floats | None = None,
    penalty: float = 1e-4,
) -> TukeyHead:
    """Fit the head that CCVR retrains, on virtual features alone.

    Args:
        statistics: pooled.
        rng: draws the virtual features.
        per_class: M; the paper takes 100, 500 and 1000 for CIFAR-10, CIFAR-100 and CINIC-10, and rarely finds more to be worse.
        power: β of Tukey's transformation after a ReLU; None for neither, as in their Algorithm 1.
        unit: as `TukeyHead`.
        centre: as `Head`, of features that were summed less their mean.
        penalty: of `fit_logistic`. The paper trains by `fit_logistic_sgd` on `tukey(features, power)`.

    Raises:
        CalibrationError: as `virtual_features` and `fit_logistic`; a power outside 0…1.
    """
    if power is not None and not 0 < power <= 1:
        raise CalibrationError(f"a power lies above 0 and up to 1, not {power!r}: pass None for none")
    features, labels = virtual_features(statistics, per_class, rng)
    tukey(features, power, out=features)
    parameters = fit_logistic(features, labels, statistics.classes, penalty=penalty)
    empty = tuple(np.flatnonzero(statistics.counts == 0).tolist())
    return TukeyHead(parameters[:-1], parameters[-1], empty, power, unit, centre=centre)
