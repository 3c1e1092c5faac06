"""Local training in this process or in a pool of processes: a function from tasks to updates, in order.

Every process runs torch on one thread. With more, processes would compete for cores, and the order of float additions, and so
the last bits, would depend on the machine.
"""

import atexit
import gc
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from mmap import ACCESS_READ, mmap
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import ClassVar

import torch

from training.algorithms.base import Update
from training.data.dataset import Dataset
from training.hardware import CPU_HARDWARE, Hardware
from training.local import LocalTrainer, Task
from training.partition import Partition
from training.ranges import check_positive
from training.recipe import Recipe
from veilsum.system.processes import end_with_parent


@contextmanager
def local_training(
    recipe: Recipe, data: Dataset, partition: Partition, workers: int, hardware: Hardware = CPU_HARDWARE
) -> Iterator[Callable[[Iterable[Task]], Iterator[Update]]]:
    """Provide a function that maps tasks to their updates, in the tasks' order.

    With `workers` > 1, that many spawned processes each hold a copy of the data and a resident model.

    Raises:
        ValueError: if `workers` < 1.
    """
    check_positive(workers=workers)
    threads = torch.get_num_threads()
    if hardware.is_cpu:  # on a GPU the threads only aggregate
        torch.set_num_threads(1)
    try:
        if workers == 1:
            yield partial(map, LocalTrainer(recipe, data, partition, hardware))
            return
        # Pickled by hand, tensors travel as bytes; multiprocessing would share memory by file descriptors, which run out in
        # containers. The records go by a file: in `initargs` each process would have to read them before the next one starts.
        # It has no name, so nothing of it stays after a kill; as a `Connection`, its descriptor is inherited.
        with TemporaryFile() as file:
            pickle.dump((recipe, data, partition, hardware), file)
            file.flush()
            with ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_Resident.start_worker,
                initargs=(Connection(os.dup(file.fileno()), writable=False),),
            ) as pool:
                yield lambda tasks: map(
                    pickle.loads, pool.map(_Resident.train_task, map(pickle.dumps, tasks))
                )
    finally:
        torch.set_num_threads(threads)


class _Resident:
    """A worker process's state between tasks."""

    trainer: ClassVar[LocalTrainer]

    @classmethod
    def start_worker(cls, file: Connection) -> None:
        end_with_parent()
        # To look through all of torch for garbage at the end takes time, and finds nothing.
        atexit.register(gc.freeze)
        torch.set_num_threads(1)
        with mmap(file.fileno(), 0, access=ACCESS_READ) as pickled:  # processes share the position of reads
            cls.trainer = LocalTrainer(*pickle.loads(pickled))  # noqa: S301  from our own parent process

    @classmethod
    def train_task(cls, task: bytes) -> bytes:
        return pickle.dumps(cls.trainer(pickle.loads(task)))  # noqa: S301  from our own parent process
