"""Local training in this process, in a pool of processes, or in `torchrun`'s: a function from tasks to updates, in order.

Every process runs torch on one thread. With more, processes would compete for cores, and the order of float additions, and so
the last bits, would depend on the machine.
"""

import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import ClassVar, TypeVar, cast

import torch
from torch import distributed

from training.algorithms import Update
from training.data import Dataset
from training.hardware import CPU, Hardware
from training.local import LocalTrainer, Task
from training.partition import Partition
from training.recipe import Recipe

T = TypeVar("T")


@contextmanager
def local_training(
    recipe: Recipe, data: Dataset, partition: Partition, workers: int, hardware: Hardware = CPU
) -> Iterator[Callable[[Iterable[Task]], Iterator[Update]]]:
    """Provide a function that maps tasks to their updates, in the tasks' order.

    With `workers` > 1, that many spawned processes each hold a copy of the data and a resident model. In an
    initialised `torch.distributed` group, every process trains its share of the tasks and receives all updates, so
    that all processes take the same next step.

    Raises:
        ValueError: if `workers` < 1, or > 1 in a process of a group.
    """
    grouped = _processes() > 1
    if workers < 1 or (grouped and workers > 1):
        raise ValueError(
            f"workers must be at least 1, not {workers}"
            if workers < 1
            else f"torchrun started {_processes()} processes already: leave workers at 1"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if workers == 1:
            trainer = LocalTrainer(recipe, data, partition, hardware)
            yield lambda tasks: _shared(trainer, list(tasks)) if grouped else map(trainer, tasks)
            return
        # Pickled by hand, tensors travel as bytes; multiprocessing would share memory by file descriptors, which run out in
        # containers.
        with ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_Resident.start,
            initargs=(pickle.dumps((recipe, data, partition, hardware)),),
        ) as pool:
            yield lambda tasks: map(pickle.loads, pool.map(_Resident.train, map(pickle.dumps, tasks)))
    finally:
        torch.set_num_threads(threads)


def is_first() -> bool:
    """Return whether this process is the first of its `torch.distributed` group, or in none."""
    return _processes() == 1 or distributed.get_rank() == 0


def from_first(make: Callable[[], T]) -> T:
    """Call `make` in the group's first process, and return its result, or raise its error, in each process."""
    if _processes() == 1:
        return make()
    made: list[T | Exception | None] = [None]
    if is_first():
        try:
            made = [make()]
        except Exception as error:  # noqa: BLE001  the other processes wait for it
            made = [error]
    distributed.broadcast_object_list(made)
    [result] = made
    if isinstance(result, Exception):
        raise result
    return cast("T", result)


def of_all(value: T) -> list[T]:
    """Gather a value from each process of the group, by rank."""
    gathered = [value] * _processes()
    if len(gathered) > 1:
        distributed.all_gather_object(gathered, value)
    return gathered


def _processes() -> int:
    grouped = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if grouped else 1


def _shared(trainer: LocalTrainer, tasks: list[Task]) -> Iterator[Update]:
    """Train every n-th task in each process of the group, and share all updates."""
    processes = _processes()
    own = [trainer(task) for task in tasks[distributed.get_rank() :: processes]]
    gathered = of_all(own)
    # Not an all-reduce, whose order of additions, and so the last bits, depends on the number of processes.
    return (gathered[i % processes][i // processes] for i in range(len(tasks)))


class _Resident:
    """A worker process's state between tasks."""

    trainer: ClassVar[LocalTrainer]

    @classmethod
    def start(cls, setup: bytes) -> None:
        torch.set_num_threads(1)
        cls.trainer = LocalTrainer(*pickle.loads(setup))  # noqa: S301  from our own parent process

    @classmethod
    def train(cls, task: bytes) -> bytes:
        return pickle.dumps(cls.trainer(pickle.loads(task)))  # noqa: S301  from our own parent process
