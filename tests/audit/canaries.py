"""Hundreds of canaries in one full-size noisy sum, half of them in it: μ from one release instead of thousands.

After Steinke, Nasr and Jagielski (2023): each canary is in or out by a coin of its own, and orthonormal rows do not disturb each other,
so one release scores them all as well as a release each would. 512 scores tell μ to a tenth; a few releases to a few percent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from calibration import FeaturesLattice
from calibration.moments import IntegerMoments
from calibration.privacy import Mechanism, ffc_sensitivity, noisy_layout
from calibration.privacy.audit import Estimate, estimate_mu
from calibration.privacy.mechanism import diagonal_of
from tests.audit.pipeline import COLLUDERS, MEMBERS, MU, Bug, masked_sums, unchanged

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RECORDS = 40  # of each member beside the canaries


@dataclass(frozen=True)
class Canaries:
    """Releases of (V, U) with half of the canaries in each, among exactly n_min survivors, of whom `a` add no noise.

    Attributes:
        dim: l, at least as many as canaries.
        classes: C.
        count: canaries, an even number.
        bug: what is done to the honest members' shares.
    """

    dim: int
    classes: int
    count: int = 512
    bug: Bug = unchanged

    @cached_property
    def mechanism(self) -> Mechanism:
        return Mechanism(
            noisy_layout(self.dim, self.classes),
            FeaturesLattice(10),
            1.0,
            ffc_sensitivity(1.0),
            MU,
            members=MEMBERS,
            survivors_min=MEMBERS,
            colluders=COLLUDERS,
        )

    @cached_property
    def rows(self) -> Floats:
        """(count, dim) orthonormal rows, on the lattice."""
        rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((self.dim, self.count)))[0]
        lattice = self.mechanism.lattice
        return lattice.decode(lattice.encode_rows(rotation.T), 1)

    @cached_property
    def labels(self) -> Integers:
        return np.random.default_rng(1).integers(0, self.classes, self.count)

    @cached_property
    def others(self) -> tuple[Integers, ...]:
        """Each member's exact vector without canaries."""
        rng, found = np.random.default_rng(2), []
        for _ in range(MEMBERS):
            own = self._statistics
            own.update(rng.standard_normal((RECORDS, self.dim)), rng.integers(0, self.classes, RECORDS))
            found.append(own.flat)
        return tuple(found)

    @property
    def _statistics(self) -> IntegerMoments:
        return IntegerMoments(self.mechanism.layout, self.mechanism.lattice)

    @cached_property
    def _variances(self) -> Floats:
        """(elements,) of the noise on the sum as it is: an attacker knows it, bug and all."""
        layout, found = self.mechanism.layout, np.zeros(self.mechanism.layout.elements)
        for own in self.bug([self.mechanism.shares] * self.mechanism.honest):
            for share in own:
                part = found[layout.slices[share.block]]
                part += share.variance
                if share.diagonal is not None:
                    part[diagonal_of(self.dim)] += share.diagonal - share.variance
        floor: Floats = np.maximum(found, 1.0)  # where there is no noise at all
        return floor

    def scores(self, seed: int, release: int) -> tuple[Floats, Floats]:
        """Of one release: (count/2,) scores of the canaries that are out of it, and of those that are in."""
        chosen = np.random.default_rng([seed, release]).permutation(self.count)
        out, inside = chosen[: self.count // 2], chosen[self.count // 2 :]
        own = self._statistics
        own.update(self.rows[inside], self.labels[inside])
        vectors = [self.others[0] + own.flat, *self.others[1:]]
        total = masked_sums(self.mechanism, self.bug, vectors, 1, seed, release)[0]
        # What the attacker knows is taken off: all but which canaries there are.
        known = self.mechanism.layout.unflatten((total - sum(self.others)) / self._variances)
        V, lattice = known["V"], self.mechanism.lattice
        A = (V + np.diag(V.diagonal())) / 2  # zᵀAz takes each element of the triangle once
        found = np.einsum("il,il->i", self.rows @ A, self.rows) * lattice.unit(2)
        found += np.einsum("il,li->i", self.rows, known["U"][:, self.labels]) * lattice.unit(1)
        return found[out], found[inside]

    def estimate(self, releases: int, seed: int) -> Estimate:
        """μ̂ from so many releases, each with coins of its own."""
        scored = [self.scores(seed, release) for release in range(releases)]
        without, having = (np.concatenate(each) for each in zip(*scored, strict=True))
        return estimate_mu(without, having)
