"""Gaussians of the classes from noisy sums: what CCVR draws from where counts, sums and second moments carry noise.

With E of deviation σ on a diagonal and σ/√2 off it, E‖E‖² = σ²·l(l + 1)/2. A class's covariance is drawn to the one that classes share
by as much as noise explains of their difference, and what is left of its noise is shrunk away as in `solve_noisy`. All of it follows
from the noisy sums, and costs nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import NoRecords
from calibration.privacy.solving import shrunk

if TYPE_CHECKING:
    from calibration.rows import Floats, Integers

_SEEN = 2.0
"""A class whose count is no more deviations above 0 is taken to be empty."""


@dataclass(frozen=True, eq=False)
class NoisyGaussians:
    """As `CCVRStatistics` where a head is solved: counts, means and covariances.

    Attributes:
        noisy_counts: (C,) N̂.
        sums: (C, l) Σz of each class.
        moments: (C, l, l) Σzzᵀ of each class.
        count_deviation: of the noise on N̂.
        deviation: σ on the diagonal of a moment.
    """

    noisy_counts: Floats
    sums: Floats
    moments: Floats
    count_deviation: float
    deviation: float

    @property
    def dim(self) -> int:
        """Features, l."""
        return int(self.sums.shape[1])

    @property
    def classes(self) -> int:
        """Classes, C."""
        return len(self.sums)

    @cached_property
    def counts(self) -> Integers:
        """(C,) whole, 0 where noise alone explains a class, else 2 at least."""
        seen = self.noisy_counts > _SEEN * self.count_deviation
        return np.where(seen, np.maximum(2, np.rint(self.noisy_counts)), 0).astype(np.int64)

    @property
    def records(self) -> int:
        """N, as the counts have it; 0 where noise made it negative."""
        return max(0, round(float(self.noisy_counts.sum())))

    def mean(self, label: int) -> Floats:
        """μ_c, (l,), no longer than 1."""
        mean: Floats = self.sums[label] / self.counts[label]
        return mean / max(1.0, float(np.linalg.norm(mean)))

    def covariance(self, label: int) -> Floats:
        """Σ_c, (l, l), drawn to the shared one and definite."""
        count, shared = int(self.counts[label]), self.shared_covariance()
        own = self._scatter(label) / count
        noise = (self.deviation / count) ** 2 * self.dim * (self.dim + 1) / 2
        apart = float(((own - shared) ** 2).sum())
        kept = max(0.0, 1 - noise / apart) if apart else 0.0
        if kept == 0:
            return shared
        mixed = kept * own + (1 - kept) * shared
        return _shrunk(mixed, kept * self.deviation / count)

    def shared_covariance(self) -> Floats:
        """Σ of all classes that are not empty, (l, l), its noise shrunk away; NoRecords where noise drowned them."""
        return self._shared

    @cached_property
    def _shared(self) -> Floats:
        held = np.flatnonzero(self.counts)
        if not len(held):
            raise NoRecords("the noise drowned the records of every class: take a larger ε or more records")
        scatter = sum(self._scatter(label) for label in held.tolist())
        records = int(self.counts.sum())
        deviation = self.deviation * math.sqrt(len(held))
        return _shrunk(np.asarray(scatter) / records, deviation / records)

    def _scatter(self, label: int) -> Floats:
        mean = self.mean(label)
        scatter: Floats = self.moments[label] - self.counts[label] * np.outer(mean, mean)
        return scatter


def _shrunk(matrix: Floats, deviation: float) -> Floats:
    found = shrunk(matrix, deviation)
    covariance: Floats = (found.vectors * found.eigenvalues) @ found.vectors.T
    return covariance
