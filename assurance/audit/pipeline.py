"""A noisy sum from feature rows to the lifted total, by the steps of members and the coordinator.

They are the vector of a noisy study, each member's share of the noise, the ring, pairwise masks, the sum and the centred lift.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
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
from veilsum.study.vectors import compute_vector

MEMBERS, COLLUDERS = 4, 1
NOISE = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "recipe": "sum"}
V, U = 0, 1
"""Indices of the vector's parts."""

Integers = npt.NDArray[np.int64]
Shares = list[tuple[Share, ...]]
Bug = Callable[[Shares], Shares]


@cache
def spec_of(dim: int, classes: int, kind: str = "ffc", recipe: str = "sum", step: str = "sum") -> RoundSpec:
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


def masked_sum(mechanism: Mechanism, bug: Bug, vectors: Sequence[Integers], *words: int) -> Integers:
    """Add noise, mask, sum and lift; return (elements,). The last `a` members add no noise.

    Args:
        mechanism: of `MEMBERS` members, all in the sum.
        bug: changes the honest members' shares.
        vectors: the members' exact vectors.
        words: seed of noise and masks.
    """
    shares = [*bug([mechanism.shares] * mechanism.honest), *silent([mechanism.shares] * COLLUDERS)]
    ring = Ring(48)
    total = np.zeros(mechanism.release.layout.elements, ring.dtype)
    pairs = {pair: _seed(*words, 1, *pair) for pair in combinations(range(MEMBERS), 2)}
    for index, (own, values) in enumerate(zip(shares, vectors, strict=True)):
        noisy, source = values.copy(), SeededRandom(int.from_bytes(_seed(*words, 2, index), "little"))
        add_noise(mechanism, own, noisy, 1, source)
        masked = ring.to_ring(noisy)
        added = [mask for (first, _), mask in pairs.items() if first == index]
        subtracted = [mask for (_, second), mask in pairs.items() if second == index]
        Masks(ring, added=added, subtracted=subtracted).apply_to_chunk(masked)
        total += masked
    return ring.lift_signed(total)


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
