"""Partitions: which member holds which records, and the ways to deal them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from training.ranges import check_positive

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """The records of each member.

    Attributes:
        members: per member, the sorted indices of its records, int64 of shape (n_k,).
        label_counts: records of each class at each member, int64 of shape (K, C).
        moved: records that a repair moved after sampling.
    """

    members: tuple[IntArray, ...]
    label_counts: IntArray
    moved: int = 0

    @classmethod
    def of(cls, members: Sequence[IntArray], labels: IntArray, *, moved: int = 0) -> Self:
        """Make a partition from each member's indices into `labels`, of shape (n,)."""
        classes = int(labels.max()) + 1
        indices = tuple(np.sort(np.asarray(member, dtype=np.int64)) for member in members)
        counts = np.stack([np.bincount(labels[member], minlength=classes) for member in indices])
        return cls(indices, counts.astype(np.int64), moved)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> IntArray:
        """Records of each member, of shape (K,)."""
        return np.array([len(member) for member in self.members], dtype=np.int64)

    def check(self) -> None:
        """Raise ValueError if a member has nothing to train on."""
        if not self.sizes.all():
            raise ValueError("every member must hold a record; draw the partition with min_size >= 1")

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, over each member's size and indices as little-endian 64-bit integers."""
        sha = hashlib.sha256(b"veilsum/partition/1")
        for member in self.members:
            sha.update(len(member).to_bytes(8, "little"))
            sha.update(member.astype("<i8").tobytes())
        return sha.hexdigest()


def iid_partition(labels: IntArray, members: int, rng: np.random.Generator) -> Partition:
    """Deal the shuffled records of `labels`, of shape (n,), into parts that differ in size by at most one.

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
    """Split each class of `labels`, of shape (n,), over K members in proportions drawn from Dir(α·1) (Hsu et al. 2019).

    The smaller α, the fewer members share a class. A draw that leaves a member below `min_size` is repeated, at most
    `max_retries` times: with C classes, K > C members and α → 0 every draw would fail. Then the last draw is repaired: the
    largest member gives the smallest one record, chosen at random, until all have `min_size`. `Partition.moved` counts them.

    Raises:
        ValueError: if α is not positive and finite, or n < K · min_size.
    """
    check_positive(alpha=alpha)
    _require_enough(len(labels), members, min_size)
    parts = _draw_parts(labels, members, alpha, rng)
    for _ in range(max_retries):
        if min(map(len, parts)) >= min_size:
            break
        parts = _draw_parts(labels, members, alpha, rng)
    moved = _raise_to_min_size(parts, min_size, rng)
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels, moved=moved)


def shard_partition(
    labels: IntArray, members: int, classes_per_member: int, rng: np.random.Generator
) -> Partition:
    """Deal records of a few classes to each member; classes have equally many holders, give or take one.

    Each class is cut into one even shard per holder, and every record of a class with holders is dealt once: C10-100-2
    is `shard_partition(labels, 100, 2, rng)`, 500 records a member (Huang et al. 2023, §5.1; Li and Zhan 2021).

    Raises:
        ValueError: if there are fewer classes than that, or fewer records of a class than holders.
    """
    present = np.unique(labels)
    if not 0 < classes_per_member <= len(present):
        raise ValueError(f"a member can hold 1 to {len(present)} classes, not {classes_per_member}")
    _require_enough(len(labels), members, 1)
    held = _classes_of_members(members, classes_per_member, len(present), rng)
    parts: list[list[int]] = [[] for _ in range(members)]
    for column, label in enumerate(present):
        own, holders = rng.permutation(np.flatnonzero(labels == label)), np.flatnonzero(held[:, column])
        if not len(holders):
            continue
        if len(own) < len(holders):
            raise ValueError(f"class {label} has {len(own)} records, too few for {len(holders)} members")
        for holder, shard in zip(holders, np.array_split(own, len(holders)), strict=True):
            parts[holder].extend(shard.tolist())
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels)


def quantity_partition(
    labels: IntArray, members: int, beta: float, rng: np.random.Generator, *, min_size: int = 1
) -> Partition:
    """Deal shuffled records in shares drawn from Dir(β·1): equal classes, unequal quantities (Li et al. 2022, §III-C).

    Members below `min_size` are repaired as by `dirichlet_partition`.

    Raises:
        ValueError: if β is not positive and finite, or n < K · min_size.
    """
    check_positive(beta=beta)
    _require_enough(len(labels), members, min_size)
    shares = rng.dirichlet(np.full(members, beta))
    cuts = (np.cumsum(shares)[:-1] * len(labels)).astype(np.int64)
    parts = [part.tolist() for part in np.split(rng.permutation(len(labels)), cuts)]
    moved = _raise_to_min_size(parts, min_size, rng)
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels, moved=moved)


def natural_partition(labels: IntArray, groups: IntArray | None, *, min_size: int = 1) -> Partition:
    """Make a member of each group with at least `min_size` records, in the groups' order; other records stay unused.

    Raises:
        ValueError: if the data set has no groups, or none is large enough.
    """
    if groups is None:
        raise ValueError("this data set has no natural members; deal it by class, shards or quantity")
    names, sizes = np.unique(groups, return_counts=True)
    members = [
        np.flatnonzero(groups == name) for name, size in zip(names, sizes, strict=True) if size >= min_size
    ]
    if not members:
        raise ValueError(f"no group has {min_size} records; the largest has {sizes.max()}")
    return Partition.of(members, labels)


def _classes_of_members(
    members: int, classes_per_member: int, classes: int, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    # Each member takes the least-taken classes, ties by chance, so that counts stay within one of each other.
    held = np.zeros((members, classes), dtype=bool)
    taken = np.zeros(classes)
    for member in held:
        chosen = np.lexsort((rng.random(classes), taken))[:classes_per_member]
        member[chosen] = True
        taken[chosen] += 1
    return held


def _require_enough(records: int, members: int, min_size: int) -> None:
    if members < 1 or records < members * min_size:
        raise ValueError(f"{records} records can't give {members} members {min_size} each")


def _draw_parts(labels: IntArray, members: int, alpha: float, rng: np.random.Generator) -> list[list[int]]:
    parts: list[list[int]] = [[] for _ in range(members)]
    for label in np.unique(labels):
        indices = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(members, alpha))
        cuts = (np.cumsum(shares)[:-1] * len(indices)).astype(np.int64)
        for part, dealt in zip(parts, np.split(indices, cuts), strict=True):
            part.extend(dealt.tolist())
    return parts


def _raise_to_min_size(parts: list[list[int]], min_size: int, rng: np.random.Generator) -> int:
    # Each pass lowers the total shortfall by one, so it ends: n ≥ K · min_size keeps the largest above it.
    moved = 0
    while len(smallest := min(parts, key=len)) < min_size:
        largest = max(parts, key=len)
        smallest.append(largest.pop(int(rng.integers(len(largest)))))
        moved += 1
    return moved
