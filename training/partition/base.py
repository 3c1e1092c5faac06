"""Who holds which records: the value, its digest, and the file it is kept in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

_FORMAT = "veilsum/partition/1"


class PartitionError(ValueError):
    """A file that holds no partition, or one that is not what its digest says."""


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

    def describe(self) -> str:
        """The sizes in one line, as logs and tables have it."""
        sizes, classes = self.sizes, (self.label_counts > 0).sum(axis=1)
        repaired = f"; {self.moved} moved by a repair" if self.moved else ""
        return (
            f"{len(self)} members with {sizes.min()} to {sizes.max()} records (median {np.median(sizes):g}) "
            f"of {classes.min()} to {classes.max()} classes{repaired}"
        )


def save_partition(partition: Partition, path: Path) -> None:
    """Write who holds what, with its digest, as JSON."""
    content = {
        "format": _FORMAT,
        "digest": partition.digest,
        "moved": partition.moved,
        "members": [member.tolist() for member in partition.members],
    }
    path.write_text(json.dumps(content) + "\n", "utf-8")


def load_partition(path: Path, labels: IntArray) -> Partition:
    """Read what `save_partition` wrote, for the records with these labels, of shape (n,).

    Raises:
        FileNotFoundError: if there is no such file.
        PartitionError: if it holds something else, its members were changed, or it names records that `labels` doesn't have. What it
            says of a repair (`moved`) is no part of the digest and taken at its word.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        found, stated, moved = content["format"], content["digest"], content["moved"]
        members = [np.array(member, dtype=np.int64) for member in content["members"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PartitionError(f"{path} holds no partition: {type(error).__name__}: {error}") from error
    if not members or any(member.ndim != 1 for member in members):
        raise PartitionError(f"{path} holds no partition: its members are no lists of records")
    if not isinstance(moved, int) or not 0 <= moved <= len(labels):
        raise PartitionError(f"{path}: a repair can't have moved {moved!r} of {len(labels)} records")
    if found != _FORMAT:
        raise PartitionError(f"{path} holds no partition: its format is {found!r}, not {_FORMAT!r}")
    if any(len(member) and not 0 <= member.min() <= member.max() < len(labels) for member in members):
        raise PartitionError(f"{path} deals records that a data set of {len(labels)} doesn't have")
    partition = Partition.of(members, labels, moved=moved)
    if partition.digest != stated:
        raise PartitionError(
            f"the partition in {path} has digest {partition.digest}, not {stated}: it was changed"
        )
    return partition
