"""Noise on a sum of statistics, drawn by its members in shares: who adds how much, and what that promises.

The sum should carry noise of deviation σ = Δ/μ on every weighted coordinate: in grid steps σ·unit/weight, and √½ of it off
the diagonal of a symmetric block, where each element counts twice. At least `survivors_min` vectors are in any
sum that is opened, of which `colluders` may be without noise or with noise that is known. So each member draws

    σ_k² = ⌈(σ² + 4)/(n_min − a)⌉,

an integer and 16 at least, and a sum of m ≥ n_min − a such shares protects like Gaussian noise of variance Σσ_k² − 4
or more. That sentence is this project's own proof (docs/privacy.md): `Mechanism.published_epsilon` is what published theorems
give without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch, NoiseTooSmall
from calibration.lattice import FeaturesLattice, require_int64
from calibration.layout import DenseBlock, Layout, SymmetricBlock
from calibration.privacy.accountant import gdp_epsilon, sum_defect, zcdp_epsilon
from calibration.privacy.sampler import VARIANCE_MAX, ByteSource, DiscreteGaussian
from calibration.privacy.sensitivity import cut_factor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from calibration.layout import Block
    from calibration.rows import Floats, Integers

SHARE_VARIANCE_MIN = 16
"""σ_k ≥ 4: a share's grid is then too fine to tell from a continuum, by less than 10⁻⁶⁷."""
DEFECT = 4
"""Taken off the variance of a sum of shares before it is compared to a Gaussian's."""
TAIL_DEVIATIONS = 12
"""An element's noise exceeds T with a chance below 2·e^−72."""

_DEGREES = {"V": 2, "U": 1, "N": 2, "z": 1, "G": 2, "M": 2, "S": 1}
"""Of a block in the features; of what is none, that of V, whose steps are fine enough for noise of a share."""
_RELEASES = tuple(frozenset(names.split()) for names in ("V U", "V U N", "z", "G", "N S M"))
"""What a noisy round may release, by the names of its blocks up to a dot."""


@dataclass(frozen=True)
class Share:
    """Variances of one member's noise on one block, in squared grid steps; 0 is no noise."""

    block: str
    variance: int
    diagonal: int | None = None
    """Of a symmetric block's diagonal; None for a dense block."""

    @property
    def variances(self) -> tuple[int, ...]:
        """One, or two for a symmetric block."""
        return (self.variance,) if self.diagonal is None else (self.variance, self.diagonal)


@dataclass(frozen=True)
class Mechanism:
    """The distributed discrete Gaussian for one release: of (V, wU), of (V, wU, αN), of any that a question names.

    Args:
        layout: `noisy_layout`, or that of another question's noisy round.
        lattice: of the round; noise is added to integers only.
        weight: w of U and S; `default_weight` has a good one.
        sensitivity: Δ of the weighted release (`calibration.privacy.sensitivity`).
        mu: what the sum is to promise.
        members: n, who may be in the sum.
        survivors_min: n_min, fewer are never opened.
        colluders: a, of them.
        counts_weight: α of the counts where the layout has them, else 0.

    Raises:
        CalibrationError: a number outside its domain.
        LatticeMismatch: more features than the lattice is fine for.
        LayoutMismatch: not a layout for noise with these weights.
        NoiseTooSmall: a share's deviation would be below 4 steps; the error says what helps.
    """

    layout: Layout
    lattice: FeaturesLattice
    weight: float
    sensitivity: float
    mu: float
    members: int
    survivors_min: int
    colluders: int
    counts_weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < self.survivors_min <= self.members:
            raise CalibrationError(
                f"noise needs 0 ≤ a < n_min ≤ n; got a = {self.colluders}, n_min = {self.survivors_min}, "
                f"n = {self.members}"
            )
        for name in ("mu", "sensitivity", "weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise CalibrationError(f"{name} is positive and finite, not {value!r}")
        kinds = frozenset(kind_of(block.name) for block in self.layout.blocks)
        weighted = math.isfinite(self.counts_weight) and self.counts_weight > 0
        if kinds not in _RELEASES or weighted != ("N" in kinds) or not (weighted or self.counts_weight == 0):
            raise LayoutMismatch(
                f"blocks {[block.name for block in self.layout.blocks][:5]} with a counts weight of {self.counts_weight!r}: under noise a "
                "layout has z, or G, or V, U, and N if and only if the counts carry a weight; make it with noisy_layout"
            )
        self.lattice.check_dim(max(block.shape[-1] for block in self.layout.blocks))
        for share in self.shares:
            self._check(share)

    @property
    def honest(self) -> int:
        """n_min − a, whose noise can be relied on."""
        return self.survivors_min - self.colluders

    @property
    def sigma(self) -> float:
        """σ = Δ/μ, the deviation on the weighted sum; σ_V in units of features of length 1."""
        return self.sensitivity / self.mu

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """What one member adds, block by block."""
        return tuple(self._share(block) for block in self.layout.blocks)

    def deviation(self, block: str, survivors: int) -> float:
        """Deviation of the noise on `block`, in statistics of unit features, when `survivors` members are summed.

        Of a symmetric block the diagonal's; √½ of it stands off the diagonal.
        """
        [share] = [share for share in self.shares if share.block == block]
        return math.sqrt(survivors * share.variances[-1]) / self.lattice.unit(degree_of(block))

    @property
    def deviation_min(self) -> float:
        """The least deviation of the noise on any element when n_min − a shares are summed, in statistics of unit features."""
        return min(
            math.sqrt(self.honest * min(share.variances)) / self.lattice.unit(degree_of(share.block))
            for share in self.shares
        )

    @property
    def mu_round(self) -> float:
        """μ of the shares as they are, rounded up to integers: μ at most.

        Δ over the smallest effective deviation of any weighted coordinate, of variance Σσ_k² − 4, which bounds
        √(Σ Δ_i²/(Σσ²_{k,i} − 4)) over all neighbours. Own proof.
        """
        return self.sensitivity / math.sqrt(min(self._effective(DEFECT)))

    def epsilon(self, delta: float) -> float:
        """ε at δ by `mu_round`. Own proof."""
        return gdp_epsilon(self.mu_round, delta)

    def published_epsilon(self, delta: float) -> float:
        """ε at δ by published theorems alone, to print beside `epsilon`.

        Each coordinate has D_α ≤ αΔ_i²/(2mσ_k²) + τ_i (Kairouz, Liu, Steinke 2021, proposition 14), independent
        coordinates add, and `zcdp_epsilon` converts.
        """
        rho = self.sensitivity**2 / min(self._effective(0)) / 2
        offset = sum(
            elements * sum_defect(variance, self.honest)
            for block, share in zip(self.layout.blocks, self.shares, strict=True)
            for elements, variance in zip(_counts(block), share.variances, strict=True)
        )
        return zcdp_epsilon(rho, delta, offset=offset)

    @property
    def noise_tail(self) -> int:
        """T, twelve deviations of the noisiest element with all n members present, in steps (`Lattice.bound`)."""
        largest = max(variance for share in self.shares for variance in share.variances)
        return TAIL_DEVIATIONS * (math.isqrt(self.members * largest) + 1)

    def weights(self) -> Floats:
        """(elements,) float64, what one grid step of each element weighs: Δ is measured in vector·weights."""
        return StepWeights(self.layout, self.lattice, self.weight, self.counts_weight).between(
            0, self.layout.elements
        )

    def _weight(self, block: str) -> float:
        return block_weight(block, self.weight, self.counts_weight)

    def _share(self, block: Block) -> Share:
        deviation = self.sigma * self.lattice.unit(degree_of(block.name)) / self._weight(block.name)
        whole = math.ceil((deviation**2 + DEFECT) / self.honest)
        if isinstance(block, DenseBlock):
            return Share(block.name, whole)
        return Share(block.name, math.ceil((deviation**2 / 2 + DEFECT) / self.honest), whole)

    def _check(self, share: Share) -> None:
        smallest, largest = min(share.variances), max(share.variances)
        if smallest < SHARE_VARIANCE_MIN:
            raise NoiseTooSmall(
                f"a member's noise on {share.block} would have a variance of {smallest} steps², below "
                f"{SHARE_VARIANCE_MIN}: take a finer lattice, a smaller μ, a smaller weight of that block, or rely on fewer "
                f"members than n_min − a = {self.honest}",
                variance=smallest,
            )
        if largest >= VARIANCE_MAX:
            raise CalibrationError(
                f"a member's noise on {share.block} would have a variance of {largest} steps², beyond the sampler's 2^62; "
                "take a coarser lattice"
            )

    def _effective(self, defect: int) -> list[float]:
        """Variances of the weighted coordinates of a sum of n_min − a shares, less `defect`; in squared units of features."""
        found = []
        for share in self.shares:
            step = self._weight(share.block) / self.lattice.unit(degree_of(share.block))
            factors = (1,) if share.diagonal is None else (2, 1)
            found += [
                factor * step**2 * (self.honest * variance - defect)
                for factor, variance in zip(factors, share.variances, strict=True)
            ]
        return found


class StepWeights:
    """What one grid step of each element of a noisy vector weighs, in memory that doesn't grow with the vector.

    Args:
        layout: of the vector.
        lattice: of the round.
        weight: w of U and S.
        counts_weight: α of the counts.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, weight: float, counts_weight: float) -> None:
        self._layout = layout
        self._steps = [
            block_weight(block.name, weight, counts_weight) / lattice.unit(degree_of(block.name))
            for block in layout.blocks
        ]
        self._diagonals = {
            block.dim: diagonal_of(block.dim) for block in layout.blocks if isinstance(block, SymmetricBlock)
        }

    def between(self, first: int, stop: int) -> Floats:
        """(stop − first,) float64, of those elements."""
        flat = np.empty(stop - first)
        for block, step in zip(self._layout.blocks, self._steps, strict=True):
            place = self._layout.slices[block.name]
            low, high = max(first, place.start), min(stop, place.stop)
            if low >= high:
                continue
            part = flat[low - first : high - first]
            part[:] = step
            if isinstance(block, SymmetricBlock):
                part *= math.sqrt(2)
                diagonal = self._diagonals[block.dim]
                begin, end = np.searchsorted(diagonal, (low - place.start, high - place.start))
                part[diagonal[begin:end] - (low - place.start)] = step
        return flat


def block_weight(block: str, weight: float, counts_weight: float) -> float:
    """What a block's numbers weigh against those of V: w of U and S, α of the counts, else 1."""
    return {"U": weight, "S": weight, "N": counts_weight}.get(kind_of(block), 1.0)


class MemberCut:
    """A member's vector shrunk, piece by piece, so that its weighted norm is at most a bound; one within it stays as it is.

    As `clip_member`: one factor for all, cut toward zero, which keeps integers integers and the norm below the bound. Nothing is
    refused, for under noise a refusal would be seen.

    Args:
        weights: of the vector's elements.
        bound: in the unit of the weighted norm.
        pieces: the whole vector, in order, int64, gone through once.
    """

    def __init__(self, weights: StepWeights, bound: float, pieces: Iterable[Integers]) -> None:
        square, position = 0.0, 0
        for piece in pieces:
            held = _held(piece) * weights.between(position, position + len(piece))
            square += float(held @ held)
            position += len(piece)
        self._factor = cut_factor(math.sqrt(square), position, bound)

    def of(self, piece: Integers) -> Integers:
        """A piece of the vector, cut: (n,) int64."""
        cut: Integers = np.trunc(_held(piece) * self._factor).astype(np.int64)
        return cut


def _held(piece: Integers) -> Floats:
    """As float64, within what it holds exactly."""
    return np.clip(piece, -(2**53), 2**53).astype(np.float64)


class MemberNoise:
    """One member's noise on one upload, element after element, in memory that doesn't grow with the vector.

    Each element's noise is drawn once: an upload that is sent again is the stored one, a retry takes new noise.

    Args:
        layout: of the vector.
        shares: one a block, in the layout's order (`Mechanism.shares`).
        source: fresh random bytes, of this upload alone.
    """

    def __init__(self, layout: Layout, shares: tuple[Share, ...], source: ByteSource) -> None:
        if [share.block for share in shares] != [block.name for block in layout.blocks]:
            raise LayoutMismatch(
                f"shares {[share.block for share in shares]} are not those of the layout's blocks"
            )
        self._layout, self._shares = layout, shares
        variances = {variance for share in shares for variance in share.variances if variance}
        self._diagonals = {
            block.dim: diagonal_of(block.dim) for block in layout.blocks if isinstance(block, SymmetricBlock)
        }
        self._samplers = {variance: DiscreteGaussian(variance, source) for variance in sorted(variances)}
        self._position = 0

    def __repr__(self) -> str:
        return f"<MemberNoise at element {self._position} of {self._layout.elements}>"

    def add_to(self, chunk: Integers) -> None:
        """Add noise to the next elements of the vector, in place.

        Args:
            chunk: (n,) int64.

        Raises:
            LayoutMismatch: more elements than the vector has left.
            WrongDtype: not int64.
        """
        require_int64(chunk)
        first, stop = self._position, self._position + chunk.size
        if chunk.ndim != 1 or stop > self._layout.elements:
            raise LayoutMismatch(
                f"{chunk.shape} elements from {first} on, but the vector has {self._layout.elements}, each of which "
                "takes its noise once; make a new MemberNoise for a new upload"
            )
        for block, share in zip(self._layout.blocks, self._shares, strict=True):
            place = self._layout.slices[block.name]
            low, high = max(first, place.start), min(stop, place.stop)
            if low < high:
                self._add(chunk[low - first : high - first], low - place.start, block, share)
        self._position = stop

    def _add(self, part: Integers, offset: int, block: Block, share: Share) -> None:
        noise = self._draw(part.size, share.variance)
        if isinstance(block, SymmetricBlock) and share.diagonal is not None:
            diagonal = self._diagonals[block.dim]
            first, stop = np.searchsorted(diagonal, (offset, offset + part.size))
            noise[diagonal[first:stop] - offset] = self._draw(int(stop - first), share.diagonal)
        part += noise

    def _draw(self, elements: int, variance: int) -> Integers:
        noise = np.zeros(elements, np.int64)
        if variance:
            self._samplers[variance].fill(noise)
        return noise


def noisy_layout(dim: int, classes: int, *, bias: bool = False, counts: bool = False) -> Layout:
    """V (l, l) symmetric, U (l, C), and N (C,) only where counts are to carry noise of their own; l = dim + bias.

    N counts in steps as fine as V's, and so that no exact count is taken for one. With a bias the counts can be read off the constant
    column of U, at no cost.

    Raises:
        LayoutMismatch: a dimension is no whole number from 1.
    """
    rows = dim + bool(bias)
    blocks: tuple[Block, ...] = (SymmetricBlock("V", rows), DenseBlock("U", (rows, classes)))
    return Layout((*blocks, DenseBlock("N", (classes,))) if counts else blocks)


def class_layout(dim: int, classes: int) -> Layout:
    """CCVR's N (C,), S (C, l) and for each class the symmetric (l, l) M.c."""
    blocks = (DenseBlock("N", (classes,)), DenseBlock("S", (classes, dim)))
    return Layout((*blocks, *(SymmetricBlock(f"M.{label}", dim) for label in range(classes))))


def kind_of(block: str) -> str:
    """What a block's name says before a dot: M.3 is a second moment as M.0 is."""
    return block.partition(".")[0]


def degree_of(block: str) -> int:
    """Of the statistic in the features, under noise."""
    return _DEGREES[kind_of(block)]


def mean_layout(dim: int) -> Layout:
    """Σ(z, 1)/√2, (dim + 1,)."""
    return Layout((DenseBlock("z", (dim + 1,)),))


def gradient_layout(rows: int, classes: int) -> Layout:
    """G, (l, C)."""
    return Layout((DenseBlock("G", (rows, classes)),))


COUNTS_WEIGHT = 0.5
"""α beside other blocks: counts twice as noisy as V's diagonal, for 6 % more noise on V and U at w = 1."""


def default_weight(classes: int) -> float:
    """w: 1 up to 20 classes, 2 above, where U has the harder task."""
    return 1.0 if classes <= 20 else 2.0


def diagonal_of(dim: int) -> Integers:
    """(dim,) where the diagonal stands in a packed upper triangle."""
    rows = np.arange(dim, dtype=np.int64)
    return rows * dim - rows * (rows - 1) // 2


def _counts(block: Block) -> tuple[int, ...]:
    """Elements off and on the diagonal, or all of a dense block."""
    if isinstance(block, SymmetricBlock):
        return block.elements - block.dim, block.dim
    return (block.elements,)
