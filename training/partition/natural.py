"""Members that the data itself has: writers, speakers, institutions, domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.partition.base import Partition

if TYPE_CHECKING:
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


def natural_partition(labels: IntArray, groups: IntArray | None, *, min_size: int = 1) -> Partition:
    """A member for each group with at least `min_size` records, in the groups' order; the others' records stay unused.

    Args:
        labels: int64 of shape (n,).
        groups: `Dataset.groups`, int64 of shape (n,).
        min_size: LEAF's experiments leave writers with few records out.

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
