"""Local training here, or over processes: either way a function from tasks to updates, in order.

Every process runs torch on one thread: with more, processes fight over the cores, and the order in which
floats are added, hence the last bits, would depend on the machine.
"""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import torch

from training.local import LocalTrainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from training.algorithms import Update
    from training.data import Dataset
    from training.local import Task
    from training.partition import Partition
    from training.recipe import Recipe


@contextmanager
def local_training(
    recipe: Recipe, data: Dataset, partition: Partition, workers: int
) -> Iterator[Callable[[Iterable[Task]], Iterator[Update]]]:
    """Within the block, a function that maps tasks to their updates, in the tasks' order.

    With `workers` > 1, that many spawned processes each hold a copy of the data and a resident model.

    Raises:
        ValueError: if there is not at least one worker.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if workers == 1:
            trainer = LocalTrainer(recipe, data, partition)
            yield lambda tasks: map(trainer, tasks)
            return
        # Pickled by hand, tensors travel as bytes; multiprocessing's own way would share memory by file
        # descriptors, which run out in containers.
        with ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_Resident.start,
            initargs=(pickle.dumps((recipe, data, partition)),),
        ) as pool:
            yield lambda tasks: map(pickle.loads, pool.map(_Resident.train, map(pickle.dumps, tasks)))
    finally:
        torch.set_num_threads(threads)


class _Resident:
    """What a worker process keeps between tasks."""

    trainer: ClassVar[LocalTrainer]

    @classmethod
    def start(cls, setup: bytes) -> None:
        torch.set_num_threads(1)
        cls.trainer = LocalTrainer(*pickle.loads(setup))  # noqa: S301  from our own parent process

    @classmethod
    def train(cls, task: bytes) -> bytes:
        return pickle.dumps(cls.trainer(pickle.loads(task)))  # noqa: S301  from our own parent process
