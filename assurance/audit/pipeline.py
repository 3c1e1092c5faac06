"""A noisy sum from feature rows to the lifted total, thousands of times, with or without a canary.

All steps between are those of members and the coordinator: the vector of a noisy study, each member's share of the noise, the ring,
pairwise masks, the sum, the centred lift. Vectors of many releases are concatenated, so that one pass
over members serves them all.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from tests.support.simulator import SeededRandom, simulated_content, simulated_question
from veilsum.calibration.privacy.mechanism import Mechanism, Share
from veilsum.calibration.privacy.release import Release, WeightedBlock
from veilsum.protocol.keystream import Masks
from veilsum.protocol.ring import Ring
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.promise import mechanism_of
from veilsum.study.vectors import compute_vector

DIM, CLASSES = 16, 2
MEMBERS, COLLUDERS = 4, 1
RECORDS = 6  # of each member
RELEASES = 200  # in one batch
PILOT = 100
NOISE = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "recipe": "sum"}
V, U = 0, 1
"""Indices of the vector's parts."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Shares = list[tuple[Share, ...]]
Bug = Callable[[Shares], Shares]


@cache
def spec_of(
    dim: int = DIM, classes: int = CLASSES, kind: str = "ffc", recipe: str = "sum", step: str = "sum"
) -> RoundSpec:
    """Make a step of a noisy study: four members, one colludes, and all must survive."""
    statistic: dict[str, Any] = {"kind": kind}
    question = simulated_question(MEMBERS, colluders=COLLUDERS) | {
        "dim": dim,
        "classes": [f"class-{label}" for label in range(classes)],
        "statistics": [statistic],
        "noise": {**NOISE, "recipe": recipe, **({} if recipe == "sum" else {"epsilon": 10.0})},
        "ring_bits": 48,
    }
    content = simulated_content(question, 2_000_000_000)
    return RoundSpec(content, bytes(32), "p", step, (), MEMBERS, MEMBERS, 1 << 20)


def exact(spec: RoundSpec, rows: Any, labels: Any, material: Any = None) -> Integers:
    """Return a member's vector before noise."""
    with patch.object(Mechanism, "add_noise", lambda *_: None):
        return compute_vector(spec, rows, labels, material)


def variances(part: int, factor: float, diagonal_factor: float | None = None) -> Bug:
    """Make a bug that scales the variances of one part in all shares."""
    on = factor if diagonal_factor is None else diagonal_factor

    def changed(place: int, share: Share) -> Share:
        return Share(int(share.variance * factor), int(share.diagonal * on)) if place == part else share

    return lambda shares: [tuple(changed(*each) for each in enumerate(own)) for own in shares]


def silent(shares: Shares) -> Shares:
    return [tuple(Share(0, 0) for _ in own) for own in shares]


def unchanged(shares: Shares) -> Shares:
    return shares


def both(first: Bug, second: Bug) -> Bug:
    return lambda shares: second(first(shares))


BUGS: dict[str, Bug] = {
    "half of sigma": both(variances(V, 1 / 4), variances(U, 1 / 4)),
    "a forgotten root of 2": both(variances(V, 1 / 2), variances(U, 1 / 2)),
    "off the diagonal halved": variances(V, 1 / 2, diagonal_factor=1),
    "a member without its share": lambda shares: [*silent(shares[:1]), *shares[1:]],
    "no noise on U": variances(U, 0),
}
"""Five errors in the shares, as they have happened elsewhere."""


@dataclass(frozen=True)
class Pipeline:
    """Sums over exactly n_min survivors, `a` of whom add no noise: the case for which μ is promised.

    Attributes:
        bug: changes the honest members' shares.
    """

    bug: Bug = unchanged

    @property
    def mechanism(self) -> Mechanism:
        return mechanism_of(spec_of())

    def member(self, index: int, *, canary: bool) -> Integers:
        """Return a member's exact vector; the first honest member's may contain the canary, of class 1.

        The canary is a row that the lattice represents exactly, with the largest possible off-diagonal part of zzᵀ.
        """
        rng = np.random.default_rng(index)
        rows, labels = rng.standard_normal((RECORDS, DIM)), rng.integers(0, CLASSES, RECORDS)
        if canary and index == 0:
            rows, labels = np.vstack([rows, np.ones((1, DIM))]), np.append(labels, 1)
        return exact(spec_of(), rows, labels)

    def sums(self, releases: int, *, canary: bool, seed: int, batch: int = 0) -> Integers:
        """Return the (releases, elements) lifted totals."""
        vectors = [self.member(index, canary=canary) for index in range(MEMBERS)]
        return masked_sums(self.mechanism, self.bug, vectors, releases, seed, batch, canary)

    def scores(self, releases: int, *, canary: bool, seed: int) -> Floats:
        """Return the (releases,) scores of the best distinguisher for the canary. The attacker knows the noise, including the bug."""
        difference = self.member(0, canary=True) - self.member(0, canary=False)
        weights = difference / self.variances
        found = []
        for start in range(0, releases, RELEASES):
            batch = self.sums(min(RELEASES, releases - start), canary=canary, seed=seed, batch=start)
            found.append(batch @ weights)
        return np.concatenate(found)

    @cached_property
    def variances(self) -> Floats:
        """(elements,) variances of the noise that is really on the sum, from releases that are used for nothing else."""
        sums = self.sums(PILOT, canary=False, seed=0, batch=-1)
        release = self.mechanism.release
        # One variance each for V's off-diagonal elements, its diagonal, and U.
        parts = np.zeros(release.layout.elements, np.int64)
        parts[release.parts[V].diagonal] = 1
        parts[release.layout.slices["U"]] = 2
        found = np.array([sums[:, parts == part].var(axis=0).mean() for part in range(3)])
        floor: Floats = np.maximum(found, 1.0)  # in case there is no noise
        return floor[parts]


def masked_sums(
    mechanism: Mechanism, bug: Bug, vectors: Sequence[Integers], releases: int, *words: int
) -> Integers:
    """Add noise, mask, sum and lift; return (releases, elements). The last `a` members add no noise.

    Args:
        mechanism: of `MEMBERS` members, all in the sum.
        bug: changes the honest members' shares.
        vectors: the members' exact vectors.
        releases: how many, each with noise of its own.
        words: seed of noise and masks.
    """
    shares = [*bug([mechanism.shares] * mechanism.honest), *silent([mechanism.shares] * COLLUDERS)]
    ring = Ring(48)
    total = np.zeros(releases * mechanism.release.layout.elements, ring.dtype)
    pairs = {pair: _seed(*words, 1, *pair) for pair in combinations(range(MEMBERS), 2)}
    for index, (own, values) in enumerate(zip(shares, vectors, strict=True)):
        noisy = np.tile(values, releases)
        add_noise(
            mechanism, own, noisy, releases, SeededRandom(int.from_bytes(_seed(*words, 2, index), "little"))
        )
        masked = ring.to_ring(noisy)
        added = [mask for (first, _), mask in pairs.items() if first == index]
        subtracted = [mask for (_, second), mask in pairs.items() if second == index]
        Masks(ring, added=added, subtracted=subtracted).apply_to_chunk(masked)
        total += masked
    return ring.lift_signed(total).reshape(releases, -1)


def add_noise(
    mechanism: Mechanism, shares: tuple[Share, ...], values: Integers, releases: int, source: SeededRandom
) -> None:
    """Add a member's noise to its vector in each release, with these shares instead of its own."""
    if not any(share.variance or share.diagonal for share in shares):
        return
    # The sampler needs a variance of at least 1: one step, among thousands.
    drawn = tuple(Share(max(1, share.variance), max(1, share.diagonal)) for share in shares)
    many = _repeated(mechanism, releases)
    vars(many)["shares"] = drawn * releases  # a cached property, overridden by the bug
    many.add_noise(values, source)


def _seed(*words: int) -> bytes:
    return hashlib.sha256(repr(words).encode()).digest()


@cache
def _repeated(mechanism: Mechanism, times: int) -> Mechanism:
    """Repeat the mechanism's blocks, with a new name for each copy."""
    parts = tuple(
        WeightedBlock(replace(part.block, name=f"{part.block.name}.{number}"), part.degree, part.weight)
        for number in range(times)
        for part in mechanism.release.parts
    )
    return replace(mechanism, release=Release(parts, mechanism.release.row_sensitivity))
