"""Who holds which records: how a data set is dealt to a federation's members."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """The records of each member.

    Attributes:
        members: per member, the sorted indices of its records, int64 of shape (n_k,).
        label_counts: records of each class at each member, int64 of shape (K, C).
        moved: records that a repair moved after the sampler had dealt them (0: as sampled).
    """

    members: tuple[IntArray, ...]
    label_counts: IntArray
    moved: int = 0

    @classmethod
    def of(cls, members: Sequence[IntArray], labels: IntArray, *, moved: int = 0) -> Partition:
        """A partition from each member's indices into `labels`, of shape (n,)."""
        classes = int(labels.max()) + 1
        indices = tuple(np.sort(np.asarray(member, dtype=np.int64)) for member in members)
        counts = np.stack([np.bincount(labels[member], minlength=classes) for member in indices])
        return cls(indices, counts.astype(np.int64), moved)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> IntArray:
        """The number of records of each member, of shape (K,)."""
        return np.array([len(member) for member in self.members], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, over each member's size and indices as little-endian 64-bit integers."""
        sha = hashlib.sha256(b"veilsum/partition/1")
        for member in self.members:
            sha.update(len(member).to_bytes(8, "little"))
            sha.update(member.astype("<i8").tobytes())
        return sha.hexdigest()


def iid_partition(labels: IntArray, members: int, rng: np.random.Generator) -> Partition:
    """Deal the shuffled records of `labels`, of shape (n,), into parts whose sizes differ by one at most.

    Raises:
        ValueError: if there are fewer records than members.
    """
    _require_enough(len(labels), members, 1)
    return Partition.of(np.array_split(rng.permutation(len(labels)), members), labels)


def dirichlet_partition(
    labels: IntArray,
    members: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_size: int = 1,
    max_retries: int = 20,
) -> Partition:
    """Split each class over the members in proportions drawn from Dir(α·1) (Hsu et al. 2019).

    The smaller α, the fewer members share a class. A draw that leaves a member below `min_size` is drawn
    again, `max_retries` times at most: with C classes, K > C members and α → 0 no draw would ever do. After
    that the last draw is repaired: the largest member gives the smallest one record, chosen at random,
    until nobody is below `min_size`. `Partition.moved` says how many records moved.

    Args:
        labels: the labels, int64 of shape (n,).
        members: the number of members K.
        alpha: the concentration α > 0.
        rng: where the randomness comes from.
        min_size: the fewest records a member may hold.
        max_retries: how many further draws to make before repairing.

    Raises:
        ValueError: if α is not positive, or n < K · min_size.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, not {alpha}")
    _require_enough(len(labels), members, min_size)
    parts = _draw(labels, members, alpha, rng)
    for _ in range(max_retries):
        if min(map(len, parts)) >= min_size:
            break
        parts = _draw(labels, members, alpha, rng)
    moved = _repair(parts, min_size, rng)
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels, moved=moved)


def _require_enough(records: int, members: int, min_size: int) -> None:
    if members < 1 or records < members * min_size:
        raise ValueError(f"{records} records can't give {members} members {min_size} each")


def _draw(labels: IntArray, members: int, alpha: float, rng: np.random.Generator) -> list[list[int]]:
    parts: list[list[int]] = [[] for _ in range(members)]
    for label in np.unique(labels):
        indices = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(members, alpha))
        cuts = (np.cumsum(shares)[:-1] * len(indices)).astype(np.int64)
        for part, dealt in zip(parts, np.split(indices, cuts), strict=True):
            part.extend(dealt.tolist())
    return parts


def _repair(parts: list[list[int]], min_size: int, rng: np.random.Generator) -> int:
    # Each pass lowers the total shortfall by one, so it ends: n ≥ K · min_size keeps the largest above it.
    moved = 0
    while len(smallest := min(parts, key=len)) < min_size:
        largest = max(parts, key=len)
        smallest.append(largest.pop(int(rng.integers(len(largest)))))
        moved += 1
    return moved
