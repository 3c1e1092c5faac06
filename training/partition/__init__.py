"""Who holds which records: how a data set is dealt to a federation's members."""

from training.partition.base import Partition, PartitionError, load_partition, save_partition
from training.partition.natural import natural_partition
from training.partition.samplers import (
    dirichlet_partition,
    iid_partition,
    quantity_partition,
    shard_partition,
)

__all__ = [
    "Partition",
    "PartitionError",
    "dirichlet_partition",
    "iid_partition",
    "load_partition",
    "natural_partition",
    "quantity_partition",
    "save_partition",
    "shard_partition",
]
