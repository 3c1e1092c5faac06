"""Local training in this process, in a pool of processes, or in `torchrun`'s: a function from tasks to updates, in order.

Every process runs torch on one thread. With more, processes would compete for cores, and the order of float additions, and so
the last bits, would depend on the machine.
"""

import atexit
import gc
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import ClassVar, TypeVar, cast

import torch
from safetensors.torch import load, save
from torch import distributed

from training.algorithms.base import State, Update
from training.data.dataset import Dataset
from training.hardware import CPU_HARDWARE, Hardware
from training.local import LocalTrainer, Task
from training.partition import Partition
from training.recipe import Recipe
from veilsum.system.processes import end_with_parent


def join_states(parts: Mapping[str, State | Sequence[State]]) -> State:
    """Name each tensor by its part and, in a sequence of states, its place: ``part|name`` or ``part|0|name``.

    Tensors that share memory or have gaps are copied, because safetensors does not support them.
    """
    named: State = {}
    for part, states in parts.items():
        if isinstance(states, Mapping):
            named |= {f"{part}|{name}": tensor for name, tensor in states.items()}
        else:
            named |= join_states({f"{part}|{i}": state for i, state in enumerate(states)})
    seen: set[int] = set()
    for name, tensor in named.items():
        whole = tensor.detach().contiguous()
        place = whole.untyped_storage().data_ptr()
        named[name] = whole.clone() if place in seen else whole
        seen.add(place)
    return named


def pick_state(named: State, prefix: str) -> State:
    """Return one state of those that `join_states` named."""
    return {
        name.removeprefix(f"{prefix}|"): tensor
        for name, tensor in named.items()
        if name.startswith(f"{prefix}|")
    }


def pick_states(named: State, prefix: str, count: int) -> tuple[State, ...]:
    """Return a sequence of states of those that `join_states` named."""
    return tuple(pick_state(named, f"{prefix}|{i}") for i in range(count))


T = TypeVar("T")


@contextmanager
def local_training(
    recipe: Recipe, data: Dataset, partition: Partition, workers: int, hardware: Hardware = CPU_HARDWARE
) -> Iterator[Callable[[Iterable[Task]], Iterator[Update]]]:
    """Provide a function that maps tasks to their updates, in the tasks' order.

    With `workers` > 1, that many spawned processes each hold a copy of the data and a resident model. In an
    initialised `torch.distributed` group, every process trains its own members (`is_own`) and receives all updates without
    the others' memory, so that all processes take the same next step.

    Raises:
        ValueError: if `workers` < 1, or > 1 in a process of a group.
    """
    grouped = _process_count() > 1
    if workers < 1 or (grouped and workers > 1):
        raise ValueError(
            f"workers must be at least 1, not {workers}"
            if workers < 1
            else f"torchrun started {_process_count()} processes already: leave workers at 1"
        )
    threads = torch.get_num_threads()
    if hardware.is_cpu:  # on a GPU the threads only aggregate
        torch.set_num_threads(1)
    try:
        if workers == 1:
            trainer = LocalTrainer(recipe, data, partition, hardware)
            yield lambda tasks: _share_updates(trainer, list(tasks)) if grouped else map(trainer, tasks)
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


def is_first() -> bool:
    """Return whether this process is the first of its `torch.distributed` group, or in none."""
    return _process_count() == 1 or distributed.get_rank() == 0


def is_own(member: int) -> bool:
    """Return whether this process trains the member, and so holds its memory."""
    return _process_count() == 1 or distributed.get_rank() == _owner_of(member)


def from_first(make: Callable[[], T]) -> T:
    """Call `make` in the group's first process, and return its result, or raise its error, in each process."""
    if _process_count() == 1:
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
    gathered = [value] * _process_count()
    if len(gathered) > 1:
        distributed.all_gather_object(gathered, value)
    return gathered


def of_first(memory: tuple[State, ...]) -> tuple[State, ...]:
    """Return in each process what the first one holds; the others give as many states."""
    return pick_states(_broadcast_states(0, {"memory": memory}), "memory", len(memory))


def of_owner(member: int, memory: tuple[State, ...]) -> tuple[State, ...]:
    """Return in each process what the member's own process holds of it."""
    return pick_states(_broadcast_states(_owner_of(member), {"memory": memory}), "memory", len(memory))


def _process_count() -> int:
    grouped = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if grouped else 1


def _owner_of(member: int) -> int:
    return member % _process_count()


def _share_updates(trainer: LocalTrainer, tasks: list[Task]) -> Iterator[Update]:
    """Train this process's members, and share all updates, member by member."""
    own = {task.member: trainer(task) for task in tasks if is_own(task.member)}
    # Not an all-reduce, whose order of additions, and so the last bits, depends on the number of processes.
    for task in tasks:
        yield _shared_update(task, own.get(task.member))


def _shared_update(task: Task, own: Update | None) -> Update:
    """Send an update from its member's process to the others, which do not receive the memory."""
    sent: dict[str, State | tuple[State, ...]] = {}
    if own is not None:
        counts = torch.tensor([own.records, own.steps, own.loss], dtype=torch.float64)
        sent = {"weights": own.weights, "messages": own.messages, "numbers": {"counts": counts}}
    received = _broadcast_states(_owner_of(task.member), sent)
    if own is not None:
        return own
    records, steps, loss = received["numbers|counts"].tolist()
    messages = pick_states(received, "messages", len(task.broadcasts))
    return Update(pick_state(received, "weights"), int(records), int(steps), loss, messages, task.memory)


def _broadcast_states(source: int, states: Mapping[str, State | Sequence[State]]) -> State:
    """Broadcast the source's states as one tensor of safetensors' bytes."""
    own = join_states(states)
    if _process_count() == 1:
        return own
    data = bytearray(save(own)) if distributed.get_rank() == source else bytearray()
    length = torch.tensor(len(data))
    distributed.broadcast(length, source)
    message = (
        torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
    )
    distributed.broadcast(message, source)
    return load(message.numpy().tobytes())


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
