"""The mechanism: noise on a sum of statistics, drawn by the members in shares.

The sum should have noise of deviation σ = Δ/μ on every weighted coordinate: s = σ·unit/weight in grid steps, and √½ of that off the
diagonal of a symmetric block, where each element counts twice. Any sum that is opened has at least `survivors_min` vectors, and the noise
of `colluders` of them may be missing or known. So each member draws noise of the integer variance

    v = ⌈(s² + 4)/(n_min − a)⌉ ≥ 16,

and a sum of m ≥ n_min − a such shares protects at least as well as Gaussian noise of variance Σv − 4. This claim is this project's own
proof (docs/privacy.md).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from veilsum.calibration.errors import CalibrationError, LayoutMismatch, NoiseTooSmall
from veilsum.calibration.lattice import FeaturesLattice, require_int64
from veilsum.calibration.layout import SymmetricBlock
from veilsum.calibration.privacy.accountant import gdp_epsilon
from veilsum.calibration.privacy.release import Release, WeightedBlock
from veilsum.calibration.privacy.sampler import VARIANCE_MAX, ByteSource, DiscreteGaussian
from veilsum.calibration.rows import Integers

VARIANCE_MIN = 16
"""Minimum variance of a share. Its deviation is then at least 4 steps, and the grid differs from a continuum by less than 10⁻⁶⁷."""
VARIANCE_DEFECT = 4
"""The amount subtracted from the variance of a sum of shares before it is compared with a Gaussian's."""
TAIL_DEVIATIONS = 12
"""An element's noise exceeds T with probability below 2·e^−72."""
_NOISE_PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Share:
    """Variances of one member's noise on one block, in squared grid steps.

    Attributes:
        variance: variance off the diagonal of a symmetric block, or of all elements of any other block.
        diagonal: variance on the diagonal.
    """

    variance: int
    diagonal: int


@dataclass(frozen=True)
class Mechanism:
    """The distributed discrete Gaussian for one step of one cohort.

    Args:
        release: the blocks of the vector.
        rows: maximum rows of a unit, so that Δ = rows · Δ₁.
        mu: the μ that the sum guarantees.
        members: n, members of the cohort.
        survivors_min: n_min; a sum of fewer members is never opened.
        colluders: a, members that may collude.
        lattice: the lattice of the rows.

    Raises:
        CalibrationError: a number is outside its domain, or the sampler can't draw the variance.
        NoiseTooSmall: a variance is below 16 steps².
    """

    release: Release
    rows: int
    mu: float
    members: int
    survivors_min: int
    colluders: int
    lattice: FeaturesLattice = field(default=FeaturesLattice())

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < self.survivors_min <= self.members:
            raise CalibrationError(
                f"noise needs 0 ≤ a < n_min ≤ n; got a = {self.colluders}, n_min = {self.survivors_min}, n = {self.members}"
            )
        if self.rows < 1 or not (math.isfinite(self.mu) and self.mu > 0):
            raise CalibrationError(
                f"noise needs at least one row and a positive, finite μ; got {self.rows}, {self.mu!r}"
            )
        smallest = min(share.variance for share in self.shares)
        if smallest < VARIANCE_MIN:
            raise NoiseTooSmall(
                f"a member's noise would have a variance of {smallest} steps², below {VARIANCE_MIN}: take a smaller ε"
            )
        if self.largest >= VARIANCE_MAX:
            most = math.floor(self.rows * math.sqrt(VARIANCE_MAX / self.largest) * (1 - 1e-9))
            raise CalibrationError(
                f"for {self.rows:,} rows of a unit a member's noise would have a variance of {float(self.largest):.3g} steps², more than can be "
                f"drawn ({VARIANCE_MAX:.3g}): at this ε, {self.honest:,} honest members can protect {most:,} rows. Take fewer rows, a larger ε, or "
                "more members"
            )

    @property
    def honest(self) -> int:
        """Number of members with reliable noise: n_min − a."""
        return self.survivors_min - self.colluders

    @property
    def sensitivity(self) -> float:
        """Δ, the maximum change of the weighted vector by one unit."""
        return self.rows * self.release.row_sensitivity

    @property
    def sigma(self) -> float:
        """σ = Δ/μ, the deviation on the weighted sum, in units of features of length 1."""
        return self.sensitivity / self.mu

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The noise of one member, block by block."""
        return tuple(self._block_share(part) for part in self.release.parts)

    def _block_share(self, part: WeightedBlock) -> Share:
        square = (self.sigma * self.lattice.unit(part.degree) / part.weight) ** 2
        whole = math.ceil((square + VARIANCE_DEFECT) / self.honest)
        if not isinstance(part.block, SymmetricBlock):
            return Share(whole, whole)
        return Share(math.ceil((square / 2 + VARIANCE_DEFECT) / self.honest), whole)

    @property
    def largest(self) -> int:
        """The largest variance of a share."""
        return max(share.diagonal for share in self.shares)

    @property
    def noise_tail(self) -> int:
        """T, twelve deviations of the noisiest element with all n members present, in steps."""
        return TAIL_DEVIATIONS * (math.isqrt(self.members * self.largest) + 1)

    def deviation(self, block: str, survivors: int) -> float:
        """Return the deviation of the noise on a block in a sum of `survivors` members, in units of statistics of unit features.

        For a symmetric block, it applies to the diagonal; off the diagonal the deviation is √½ of it.
        """
        part = self.release.block_named(block)
        share = self.shares[self.release.parts.index(part)]
        return math.sqrt(survivors * share.diagonal) / self.lattice.unit(part.degree)

    def add_noise(self, vector: Integers, source: ByteSource) -> None:
        """Add one member's noise to its (elements,) int64 vector, in place. `source` returns random bytes, fresh for each upload."""
        require_int64(vector)
        if vector.shape != (self.release.layout.elements,):
            raise LayoutMismatch(
                f"the vector has shape {vector.shape}, the step {self.release.layout.elements} elements"
            )
        samplers = {
            variance: DiscreteGaussian(variance, source)
            for share in self.shares
            for variance in (share.variance, share.diagonal)
        }
        places = self.release.layout.slices.values()
        for part, place, share in zip(self.release.parts, places, self.shares, strict=True):
            block = vector[place]
            kept = block[part.diagonal] if share.diagonal != share.variance else None
            noise = np.empty(min(_NOISE_PIECE_ELEMENTS, block.size), np.int64)
            for start in range(0, block.size, _NOISE_PIECE_ELEMENTS):
                piece = block[start : start + _NOISE_PIECE_ELEMENTS]
                samplers[share.variance].fill_samples(noise[: piece.size])
                piece += noise[: piece.size]
            if kept is not None:
                drawn = np.empty(kept.size, np.int64)
                samplers[share.diagonal].fill_samples(drawn)
                block[part.diagonal] = kept + drawn

    @property
    def mu_round(self) -> float:
        """μ of the actual shares, whose variances are rounded up; at most `mu`. By this project's own proof.

        It is Δ divided by the smallest effective deviation of a weighted coordinate, with variance Σv − 4. It bounds
        √(Σ Δ_i²/(Σv_i − 4)) over all neighbours.
        """
        return self.sensitivity / math.sqrt(min(self._effective_variances()))

    def epsilon(self, delta: float) -> float:
        """Return ε at δ from `mu_round`, by this project's own proof."""
        return gdp_epsilon(self.mu_round, delta)

    def _effective_variances(self) -> list[float]:
        """Return the variances of the weighted coordinates of a sum of n_min − a shares, minus `VARIANCE_DEFECT`, in squared units of features."""
        found = []
        for part, share in zip(self.release.parts, self.shares, strict=True):
            step = part.weight / self.lattice.unit(part.degree)
            off = 2 if isinstance(part.block, SymmetricBlock) else 1
            found += [
                off * step**2 * (self.honest * share.variance - VARIANCE_DEFECT),
                step**2 * (self.honest * share.diagonal - VARIANCE_DEFECT),
            ]
        return found
