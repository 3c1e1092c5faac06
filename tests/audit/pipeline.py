"""A noisy sum from feature rows to the lifted total, thousands of times, with a canary in it or not.

Everything between is what a member and the coordinator do: integer statistics, each member's share of the noise, the ring,
pairwise masks, the sum, the centred lift. Vectors of many releases stand one after the other, so that one pass
over members serves them all.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from calibration import DenseBlock, FeaturesLattice, Layout, SymmetricBlock
from calibration.moments import IntegerMoments
from calibration.privacy import Mechanism, MemberNoise, Share, ffc_sensitivity, noisy_layout
from calibration.privacy.mechanism import diagonal_of
from protocol.keystream import Keystream, Masks
from protocol.ring import Ring

DIM, CLASSES = 16, 2
MEMBERS, COLLUDERS = 4, 1
MU = 1.0
RECORDS = 6  # of each member
RECORDS_MAX = 1_000  # of all, which the ring holds
RELEASES = 200  # at a time
PILOT = 100

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Shares = list[tuple[Share, ...]]
Bug = Callable[[Shares], Shares]


def variances(block: str, factor: float, diagonal_factor: float | None = None) -> Bug:
    """Scale the variances of one block in everybody's shares."""

    def changed(share: Share) -> Share:
        if share.block != block:
            return share
        diagonal = None
        if share.diagonal is not None:
            diagonal = int(share.diagonal * (factor if diagonal_factor is None else diagonal_factor))
        return replace(share, variance=int(share.variance * factor), diagonal=diagonal)

    return lambda shares: [tuple(changed(share) for share in own) for own in shares]


def unchanged(shares: Shares) -> Shares:
    return shares


def both(first: Bug, second: Bug) -> Bug:
    return lambda shares: second(first(shares))


BUGS: dict[str, Bug] = {
    "half of sigma": both(variances("V", 1 / 4), variances("U", 1 / 4)),
    "a forgotten root of 2": both(variances("V", 1 / 2), variances("U", 1 / 2)),
    "off the diagonal halved": variances("V", 1 / 2, diagonal_factor=1),
    "a member without its share": lambda shares: [
        variances("V", 0)(variances("U", 0)(shares[:1]))[0],
        *shares[1:],
    ],
    "no noise on U": variances("U", 0),
}
"""What went wrong with the shares, five times, as it has gone wrong elsewhere."""


@dataclass(frozen=True)
class Pipeline:
    """Sums over exactly n_min survivors, of whom `a` add no noise: what is promised is promised there.

    Attributes:
        bug: what is done to the honest members' shares.
    """

    bug: Bug = unchanged

    @cached_property
    def mechanism(self) -> Mechanism:
        return Mechanism(
            noisy_layout(DIM, CLASSES),
            FeaturesLattice(10),
            1.0,
            ffc_sensitivity(1.0),
            MU,
            members=MEMBERS,
            survivors_min=MEMBERS,
            colluders=COLLUDERS,
        )

    @cached_property
    def canary(self) -> Floats:
        """A row that the lattice holds exactly, with as much off the diagonal of zzᵀ as can be."""
        return np.full((1, DIM), DIM**-0.5)

    def member(self, index: int, *, canary: bool) -> Integers:
        """A member's exact vector; the first honest one may hold the canary, of class 1."""
        rng = np.random.default_rng(index)
        statistics = IntegerMoments(self.mechanism.layout, self.mechanism.lattice)
        statistics.update(rng.standard_normal((RECORDS, DIM)), rng.integers(0, CLASSES, RECORDS))
        if canary and index == 0:
            statistics.update(self.canary, np.array([1]))
        return statistics.flat

    def sums(self, releases: int, *, canary: bool, seed: int, batch: int = 0) -> Integers:
        """(releases, elements): the lifted totals."""
        vectors = [self.member(index, canary=canary) for index in range(MEMBERS)]
        return masked_sums(self.mechanism, self.bug, vectors, releases, seed, batch, canary)

    def scores(self, releases: int, *, canary: bool, seed: int) -> Floats:
        """(releases,) of the best distinguisher for the canary: an attacker knows the noise, bug and all."""
        difference = self.member(0, canary=True) - self.member(0, canary=False)
        weights = difference / self.variances
        found = []
        for start in range(0, releases, RELEASES):
            batch = self.sums(min(RELEASES, releases - start), canary=canary, seed=seed, batch=start)
            found.append(batch @ weights)
        return np.concatenate(found)

    @cached_property
    def variances(self) -> Floats:
        """(elements,) of the noise on the sum as it is, from releases that are used for nothing else."""
        sums = self.sums(PILOT, canary=False, seed=0, batch=-1)
        parts = np.zeros(
            self.mechanism.layout.elements, np.int64
        )  # one variance each: off the diagonal, on it, U
        parts[diagonal_of(DIM)] = 1
        parts[self.mechanism.layout.slices["U"]] = 2
        found = np.array([sums[:, parts == part].var(axis=0).mean() for part in range(3)])
        floor: Floats = np.maximum(found, 1.0)  # where there is no noise at all
        return floor[parts]


def masked_sums(
    mechanism: Mechanism, bug: Bug, vectors: Sequence[Integers], releases: int, *words: int
) -> Integers:
    """(releases, elements): noise added, masked, summed, lifted; the last `a` members add no noise.

    Args:
        mechanism: of `MEMBERS`, all of them in the sum.
        bug: what is done to the honest members' shares.
        vectors: the members' exact ones.
        releases: of the same vectors, each with noise of its own.
        words: what noise and masks follow from.
    """
    honest: Shares = bug([mechanism.shares] * mechanism.honest)
    shares: Shares = honest + variances("V", 0)(variances("U", 0)([mechanism.shares] * COLLUDERS))
    ring = Ring(mechanism.lattice.required_bits(RECORDS_MAX, MEMBERS, mechanism.noise_tail))
    total = np.zeros(releases * mechanism.layout.elements, ring.dtype)
    pairs = {pair: _seed(*words, 1, *pair) for pair in combinations(range(MEMBERS), 2)}
    for index, (own, exact) in enumerate(zip(shares, vectors, strict=True)):
        vector = np.tile(exact, releases)
        source = Keystream(_seed(*words, 2, index))
        MemberNoise(*_repeated(mechanism.layout, own, releases), source).add_to(vector)
        masked = ring.to_ring(vector)
        added = [mask for (first, _), mask in pairs.items() if first == index]
        subtracted = [mask for (_, second), mask in pairs.items() if second == index]
        Masks(ring, added=added, subtracted=subtracted).apply(masked)
        total += masked
    return ring.lift(total).reshape(releases, -1)


def _seed(*words: int) -> bytes:
    return hashlib.sha256(repr(words).encode()).digest()


@cache
def _repeated(layout: Layout, shares: tuple[Share, ...], times: int) -> tuple[Layout, tuple[Share, ...]]:
    """The same blocks over and over, under names of their own."""
    blocks: list[SymmetricBlock | DenseBlock] = []
    renamed = []
    for number in range(times):
        for block, share in zip(layout.blocks, shares, strict=True):
            blocks.append(replace(block, name=f"{block.name}.{number}"))
            renamed.append(replace(share, block=f"{block.name}.{number}"))
    return Layout(tuple(blocks)), tuple(renamed)
