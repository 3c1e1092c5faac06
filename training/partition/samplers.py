"""Ways to deal records whose members are made up: alike, by class, by shards of classes, by quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.partition.base import Partition

if TYPE_CHECKING:
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


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


def shard_partition(
    labels: IntArray,
    members: int,
    classes_per_member: int,
    rng: np.random.Generator,
    *,
    per_class: int | None = None,
) -> Partition:
    """Each member holds records of a few classes, and every class goes to as many members as any other, give or take one.

    Without `per_class` each class is cut into as many even shards as it has holders, and every record of a class with
    holders is dealt once. With it a holder draws that many of the class's records for itself, so that shards overlap:
    C10-100-2 is `shard_partition(labels, 100, 2, rng, per_class=100)` (Huang et al. 2023, §5.1).

    Args:
        labels: the labels, int64 of shape (n,).
        members: K.
        classes_per_member: how many distinct classes each holds, 1..C.
        rng: where the randomness comes from.
        per_class: how many records of each of its classes a member draws; None deals all of them once.

    Raises:
        ValueError: if there are fewer classes than that, or fewer records of a class than its holders need.
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
        if len(own) < (per_class or len(holders)):
            raise ValueError(f"class {label} has {len(own)} records, too few for {per_class or len(holders)}")
        shards = (
            np.array_split(own, len(holders))
            if per_class is None
            else [rng.choice(own, per_class, replace=False) for _ in holders]
        )
        for holder, shard in zip(holders, shards, strict=False):
            parts[holder].extend(shard.tolist())
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels)


def quantity_partition(
    labels: IntArray, members: int, beta: float, rng: np.random.Generator, *, min_size: int = 1
) -> Partition:
    """Shuffled records in shares drawn from Dir(β·1): classes alike, quantities not (Li et al. 2022, §III-C).

    A member below `min_size` is filled up by `dirichlet_partition`'s repair, and `Partition.moved` says by how many.

    Raises:
        ValueError: if β is not positive, or n < K · min_size.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, not {beta}")
    _require_enough(len(labels), members, min_size)
    shares = rng.dirichlet(np.full(members, beta))
    cuts = (np.cumsum(shares)[:-1] * len(labels)).astype(np.int64)
    parts = [part.tolist() for part in np.split(rng.permutation(len(labels)), cuts)]
    moved = _repair(parts, min_size, rng)
    return Partition.of([np.array(part, dtype=np.int64) for part in parts], labels, moved=moved)


def _classes_of_members(
    members: int, classes_per_member: int, classes: int, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    # Each member takes the classes that were taken least so far, ties by chance: they stay within one of each other.
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
