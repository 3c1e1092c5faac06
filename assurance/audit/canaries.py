"""Hundreds of canaries in one full-size noisy sum, half of them included: an estimate of μ from one release instead of thousands.

After Steinke, Nasr and Jagielski (2023): each canary is included at random, and orthonormal rows don't disturb each other, so one release
scores all canaries as well as separate releases would. 512 scores estimate μ to a tenth; a few releases, to a few percent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from assurance.audit.estimate import Estimate, estimate_mu
from assurance.audit.pipeline import MEMBERS, Bug, exact, masked_sum, spec_of, unchanged
from veilsum.calibration.layout import SymmetricBlock
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.promise import mechanism_of

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RECORDS = 40  # of each member, without canaries


@dataclass(frozen=True)
class Canaries:
    """Releases of (V, U) with half of the canaries each, among exactly n_min survivors, `a` of whom add no noise.

    Attributes:
        dim: l, at least as many as canaries.
        classes: C.
        count: number of canaries, even.
        bug: changes the honest members' shares.
    """

    dim: int
    classes: int
    count: int = 512
    bug: Bug = unchanged

    @property
    def spec(self) -> RoundSpec:
        return spec_of(self.dim, self.classes)

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.spec)

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
            rows, labels = rng.standard_normal((RECORDS, self.dim)), rng.integers(0, self.classes, RECORDS)
            found.append(exact(self.spec, rows, labels))
        return tuple(found)

    @cached_property
    def _variances(self) -> Floats:
        """(elements,) variances of the noise that is really on the sum: an attacker knows them, including the bug."""
        release = self.mechanism.release
        found = np.zeros(release.layout.elements)
        for own in self.bug([self.mechanism.shares] * self.mechanism.honest):
            for part, place, share in zip(release.parts, release.layout.slices.values(), own, strict=True):
                block = found[place]
                block += share.variance
                if isinstance(part.block, SymmetricBlock):
                    block[part.diagonal] += share.diagonal - share.variance
        floor: Floats = np.maximum(found, 1.0)  # in case there is no noise
        return floor

    def scores(self, seed: int, release: int) -> tuple[Floats, Floats]:
        """Return the (count/2,) scores of a release's excluded canaries, and those of its included ones."""
        chosen = np.random.default_rng([seed, release]).permutation(self.count)
        out, inside = chosen[: self.count // 2], chosen[self.count // 2 :]
        own = exact(self.spec, self.rows[inside], self.labels[inside])
        vectors = [self.others[0] + own, *self.others[1:]]
        total = masked_sum(self.mechanism, self.bug, vectors, seed, release)
        # Subtract what the attacker knows: everything but which canaries are included.
        known = self.mechanism.release.layout.unflatten((total - sum(self.others)) / self._variances)
        V, lattice = known["V"], self.mechanism.lattice
        A = (V + np.diag(V.diagonal())) / 2  # so that zᵀAz uses each element of the triangle once
        found = np.einsum("il,il->i", self.rows @ A, self.rows) * lattice.unit(2)
        found += np.einsum("il,li->i", self.rows, known["U"][:, self.labels]) * lattice.unit(1)
        return found[out], found[inside]

    def estimate(self, releases: int, seed: int) -> Estimate:
        """Estimate μ̂ from this many releases, each with its own random choice of canaries."""
        scored = [self.scores(seed, release) for release in range(releases)]
        without, having = (np.concatenate(each) for each in zip(*scored, strict=True))
        return estimate_mu(without, having)
