"""How an experiment's records are dealt to its members, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.data import Dataset
from training.partition import (
    Partition,
    dirichlet_partition,
    iid_partition,
    natural_partition,
    quantity_partition,
    shard_partition,
)

Deal = Callable[[Dataset, np.random.Generator], Partition]


def dirichlet(*, members: int, alpha: float, min_size: int = 10) -> Deal:
    """Each class in proportions from Dir(α)."""
    return lambda data, rng: dirichlet_partition(data.y.numpy(), members, alpha, rng, min_size=min_size)


def iid(*, members: int) -> Deal:
    """Alike, but for chance."""
    return lambda data, rng: iid_partition(data.y.numpy(), members, rng)


def shards(*, members: int, classes: int, records: int | None = None) -> Deal:
    """So many classes a member; with `records` so many of each, and shards that overlap."""
    return lambda data, rng: shard_partition(data.y.numpy(), members, classes, rng, per_class=records)


def quantity(*, members: int, beta: float, min_size: int = 10) -> Deal:
    """Classes alike, and amounts in proportions from Dir(β)."""
    return lambda data, rng: quantity_partition(data.y.numpy(), members, beta, rng, min_size=min_size)


def natural(*, min_size: int = 10, members: int | None = None) -> Deal:
    """The members that the records came from: writers, speakers, domains; or so many of them, drawn."""

    def deal(data: Dataset, rng: np.random.Generator) -> Partition:
        groups = None if data.groups is None else data.groups.numpy()
        whole = natural_partition(data.y.numpy(), groups, min_size=min_size)
        if members is None:
            return whole
        if members > len(whole):
            raise ValueError(f"there are {len(whole)} natural members, not {members}")
        drawn = np.sort(rng.choice(len(whole), members, replace=False))
        return Partition.of([whole.members[k] for k in drawn], data.y.numpy())

    return deal


DEALS: dict[str, Callable[..., Deal]] = {
    "dirichlet": dirichlet,
    "iid": iid,
    "natural": natural,
    "quantity": quantity,
    "shards": shards,
}
