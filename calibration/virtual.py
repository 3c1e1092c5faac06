"""CCVR's second half: virtual features from the classes' Gaussians, and a head trained on them.

Luo et al. 2021, algorithm 1: draw M_c features of class c from N(μ_c, Σ_c) and retrain the head on them by cross-entropy.

A ReLU and x ↦ x^β, β = ½, of what was drawn are no part of that algorithm. They are a step of Tukey's ladder of powers, by which Yang
et al. 2021 ("Free Lunch for Few-shot Learning") bring features nearer to Gaussians before they fit and draw; here it comes after the
draw, and the head applies the same to real features. It is made for features that are not negative: others it sets to 0, and what
they told is lost. `power=None` leaves it out, which is the algorithm as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibration.errors import CalibrationError, NoRecords
from calibration.head import Head
from calibration.logistic import fit_logistic
from calibration.rows import Array, Floats, Integers, as_features, directions, finite_rows


class Gaussians(Protocol):
    """What features are drawn from: `CCVRStatistics`, or `NoisyGaussians`."""

    @property
    def dim(self) -> int:
        """Features, l."""
        ...

    @property
    def classes(self) -> int:
        """Classes, C."""
        ...

    @property
    def counts(self) -> Integers:
        """(C,), 0 for a class that nothing is drawn of."""
        ...

    def mean(self, label: int) -> Floats:
        """(l,)."""
        ...

    def covariance(self, label: int) -> Floats:
        """(l, l), of a class of two records or more."""
        ...

    def shared_covariance(self) -> Floats:
        """(l, l), for classes of one record."""
        ...


FLOOR = 1e-6
"""Eigenvalues of a class's covariance are raised to this share of their mean. With n_c ≤ l records most of them are 0
or, by rounding, below."""


@dataclass(frozen=True, eq=False)
class TukeyHead(Head):
    """A head on x^β of the positive part of features, as they are and not scaled to length 1."""

    power: float | None
    """β; None for features untouched."""
    unit: bool = False
    """Whether the statistics were of features scaled to length 1, so that `rows` scales them too."""

    @property
    def scales(self) -> bool:
        """As `unit`."""
        return self.unit

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """max(features, 0)^β, (n, dim) float64.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch.
            normalise: scale rows to length 1 first, for statistics of such rows.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features, but for their length.
        """
        if normalise or self.unit:
            return tukey(directions(self._checked(features, normalise=normalise), self.centre), self.power)
        return tukey(finite_rows(as_features(features, self.dim)), self.power)


def tukey(features: Floats, power: float | None, out: Floats | None = None) -> Floats:
    """max(features, 0)^power; None leaves features as they are, 1 is a ReLU alone (Tukey 1977, "ladder of powers").

    `out`, which may be `features`, takes the result.
    """
    if power is None:
        return features
    raised: Floats = np.maximum(features, 0, out=out)
    raised **= power
    return raised


def positive_definite(covariance: Floats, floor: float = FLOOR) -> tuple[Floats, Floats]:
    """Eigenvalues (l,), none below floor times their mean, and eigenvectors (l, l) of a covariance.

    Of all matrices whose eigenvalues reach the floor, QDQᵀ is the nearest to the given one in the Frobenius norm
    (Higham 1988).
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values, floor * max(float(values.mean()), 0.0)), vectors


def virtual_features(
    statistics: Gaussians,
    per_class: int,
    rng: np.random.Generator,
    *,
    proportional: bool = False,
) -> tuple[Floats, Integers]:
    """Features drawn from the Gaussian of each class that has records, before any ReLU.

    A class with a single record takes the covariance that the classes share.

    Args:
        statistics: pooled.
        per_class: M, drawn of every class.
        rng: the randomness; equal generators draw equal features on one machine.
        proportional: draw M·C'·n_c/N of class c instead, at least one: the shares of the records.

    Returns:
        (n, l) float64 and (n,) labels, class by class.

    Raises:
        NoRecords: the statistics are empty, or no class has two records.
        CalibrationError: fewer than one feature of a class.
    """
    counts = statistics.counts
    held = np.flatnonzero(counts)
    if not len(held):
        raise NoRecords("the statistics hold no records; update or add sums before drawing")
    if per_class < 1:
        raise CalibrationError(f"{per_class} virtual features of a class teach nothing; draw at least one")
    drawn = np.full(len(held), per_class)
    if proportional:
        drawn = np.maximum(1, np.rint(per_class * len(held) * counts[held] / counts.sum())).astype(int)
    shared = statistics.shared_covariance() if (counts == 1).any() else None
    # One array, filled class by class: at 100 of each of 100 classes every copy of it is 100 MB.
    features = np.empty((int(drawn.sum()), statistics.dim))
    ends = np.cumsum(drawn)
    for label, size, end in zip(held.tolist(), drawn.tolist(), ends.tolist(), strict=True):
        covariance = shared if shared is not None and counts[label] == 1 else statistics.covariance(label)
        values, vectors = positive_definite(covariance)
        # By the symmetric root, which is continuous in Σ where eigenvectors are not: sums a rounding apart draw alike.
        draws = (rng.standard_normal((size, statistics.dim)) @ vectors) * np.sqrt(values)
        drawn_here = draws @ vectors.T
        drawn_here += statistics.mean(label)
        features[end - size : end] = drawn_here
    return features, np.repeat(held, drawn)


def solve_ccvr(
    statistics: Gaussians,
    rng: np.random.Generator,
    *,
    per_class: int = 100,
    proportional: bool = False,
    power: float | None = 0.5,
    unit: bool = False,
    centre: Floats | None = None,
    penalty: float = 1e-4,
) -> TukeyHead:
    """The head that CCVR retrains, on virtual features alone.

    Args:
        statistics: pooled.
        rng: draws the virtual features.
        per_class: M; the paper takes 100, 500 and 1000 for CIFAR-10, CIFAR-100 and CINIC-10, and finds more seldom worse.
        proportional: as `virtual_features`.
        power: β of Tukey's transformation after a ReLU, which sets negative features to 0; None for neither, as Luo et al. print it.
        unit: as `TukeyHead`.
        centre: as `Head`, of features that were summed less their mean.
        penalty: of `fit_logistic`. `fit_logistic_sgd` on `tukey(features, power)` is the paper's way from the same draws.

    Raises:
        CalibrationError: as `virtual_features` and `fit_logistic`; a power not above 0.
    """
    if power is not None and not 0 < power <= 1:
        raise CalibrationError(
            f"a power of Tukey's lies above 0 and up to 1, not {power!r}; pass None for none"
        )
    features, labels = virtual_features(statistics, per_class, rng, proportional=proportional)
    tukey(features, power, out=features)
    parameters = fit_logistic(features, labels, statistics.classes, penalty=penalty)
    empty = tuple(np.flatnonzero(statistics.counts == 0).tolist())
    return TukeyHead(parameters[:-1], parameters[-1], empty, power, unit, centre=centre)
