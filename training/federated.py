"""The run loop: rounds of local training and aggregation, simulated on one machine or over several processes."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from training.algorithms import Personal, Round
from training.calibrating import Held, recalibrated
from training.evaluate import evaluate
from training.hardware import CPU, Hardware
from training.local import Task
from training.resume import RoundRecord, Snapshot
from training.seeding import Stream, generator
from training.workers import from_first, is_first, local_training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from training.algorithms import State, Update
    from training.data import Dataset, Split
    from training.heads import Classifier
    from training.partition import Partition
    from training.recipe import Recipe


class DivergedError(ArithmeticError):
    """Training left the finite numbers: the loss of members' or test records, or a weight.

    Attributes:
        round: in which, from 1.
        lr: the learning rate there.
    """

    def __init__(self, round_: int, lr: float) -> None:
        super().__init__(
            f"a loss or a weight is not a finite number in round {round_}, at a learning rate of {lr:g}: lower it"
        )
        self.round, self.lr = round_, lr


@dataclass(frozen=True)
class Trained:
    """The global classifier after the last round, and all it takes to train it again.

    Attributes:
        classifier: in evaluation mode.
        history: a record a round.
        recipe: the experiment.
        partition_digest: `Partition.digest` of who held what.
        memory: per member and term, what the member kept: personal layers are there.
    """

    classifier: Classifier
    history: tuple[RoundRecord, ...]
    recipe: Recipe
    partition_digest: str
    memory: tuple[tuple[State, ...], ...] = ()


def train(
    recipe: Recipe,
    data: Split,
    partition: Partition,
    *,
    progress: Callable[[RoundRecord], None] | None = None,
    workers: int = 1,
    hardware: Hardware = CPU,
    snapshot: Path | None = None,
    snapshot_every: int = 1,
) -> Trained:
    """Run a recipe's rounds over the members of a partition.

    The result is the same, bit for bit, for the same recipe, data and partition on the same machine's CPU, and
    does not depend on `workers`, on interruptions, or on the processes of a `torchrun`, all of which return it. A script
    that asks for workers needs the `if __name__ == "__main__":` guard, for every spawned process imports it, and choices
    that can be pickled.

    Args:
        recipe: every choice, the seed included.
        data: records to train on and records for the history's accuracy.
        partition: which training records each member holds.
        progress: called with each round's record as it is made.
        workers: how many processes train members; 1 trains them here.
        hardware: where members train.
        snapshot: a file to keep the run in between rounds, and to go on from where it exists already; of a group's processes the first
            one reads and writes it.
        snapshot_every: rounds from one snapshot to the next; the last round always leaves one.

    Raises:
        ValueError: if a member holds no records, `workers` < 1, or a recipe with a snapshot can't be described.
        ResumeError: if the snapshot is another experiment's, or of other arithmetic.
        DivergedError: if a loss or a weight is no longer finite.
    """
    if not partition.sizes.all():
        raise ValueError("every member must hold a record; draw the partition with min_size >= 1")
    model = recipe.build(data.train.classes)
    test = hardware.records(data.test)
    identity = _identity(recipe, data, partition, hardware) if snapshot is not None else {}
    run = from_first(lambda: _begun(recipe, model, len(partition), snapshot, identity))
    model.to(hardware.device)  # the server's side, that of `run`, stays on the CPU, where updates come to
    records = int(partition.sizes.sum())
    with local_training(recipe, data.train, partition, workers, hardware) as train_locally:
        for index in range(len(run.history), recipe.rounds):
            started = time.perf_counter()
            round_ = Round(index, recipe.lr_at(index), len(partition), recipe.momentum, records)
            run, local_loss, sent = _members_round(recipe, run, round_, train_locally)
            model.load_state_dict(run.model, strict=False)
            if recipe.calibrates_after(index):
                head, more = recalibrated(Held.of(model, hardware.records(data.train), partition))
                run, sent = replace(run, head={"head.weight": head}), sent + more
                model.load_state_dict(run.model, strict=False)
            test_loss, accuracy = evaluate(model, test, recipe.loss)
            if not isfinite(test_loss):  # the last step of all, or the server's own
                raise DivergedError(index + 1, round_.lr)
            record = RoundRecord(
                round=index + 1,
                rounds=recipe.rounds,
                lr=round_.lr,
                local_loss=local_loss,
                test_loss=test_loss,
                accuracy=accuracy,
                seconds=time.perf_counter() - started,
                upload_bytes=sent,
            )
            run = replace(run, history=(*run.history, record))
            due = (index + 1) % snapshot_every == 0 or index + 1 == recipe.rounds
            if snapshot is not None and due and is_first():
                run.save(snapshot, identity)
            if progress is not None:
                progress(record)
    model.load_state_dict(run.model, strict=False)
    return Trained(model.cpu().eval(), run.history, recipe, partition.digest, run.memory)


def _begun(
    recipe: Recipe, model: Classifier, members: int, snapshot: Path | None, identity: dict[str, Any]
) -> Snapshot:
    if snapshot is not None and snapshot.exists():
        return Snapshot.load(snapshot, identity)
    return _start(recipe, model, members)


def _start(recipe: Recipe, model: Classifier, members: int) -> Snapshot:
    nothing: tuple[State, ...] = tuple({} for _ in recipe.algorithm.terms)
    return Snapshot(
        weights={name: tensor.clone() for name, tensor in model.shared_weights().items()},
        server=recipe.algorithm.aggregation.start(model),
        broadcasts=tuple(term.start(model) for term in recipe.algorithm.terms),
        memory=(nothing,) * members,
        history=(),
    )


def _members_round(
    recipe: Recipe,
    run: Snapshot,
    round_: Round,
    train_locally: Callable[[Iterable[Task]], Iterable[Update]],
) -> tuple[Snapshot, float, int]:
    """Local training and aggregation: the run after it, the mean local loss by records, and the most bytes that a participant sent.

    Raises:
        DivergedError: if that loss or a weight is not finite.
    """
    chosen = _participants(recipe, round_)
    tasks = (Task(k, round_, run.model, run.broadcasts, run.memory[k]) for k in chosen)
    updates = list(train_locally(tasks))
    local_loss = float(np.average([u.loss for u in updates], weights=[u.records for u in updates]))
    run = _aggregated(recipe, run, round_, chosen, updates)
    if not (isfinite(local_loss) and all(bool(each.isfinite().all()) for each in run.weights.values())):
        raise DivergedError(round_.index + 1, round_.lr)
    return run, local_loss, max(_sent_bytes(recipe, update) for update in updates)


def _aggregated(
    recipe: Recipe, run: Snapshot, round_: Round, chosen: Sequence[int], updates: Sequence[Update]
) -> Snapshot:
    aggregation, terms = recipe.algorithm.aggregation, recipe.algorithm.terms
    weights, server = aggregation.combine(run.weights, updates, run.server, round_)
    broadcasts = tuple(
        term.reduce(broadcast, [update.messages[i] for update in updates], round_)
        for i, (term, broadcast) in enumerate(zip(terms, run.broadcasts, strict=True))
    )
    memory = list(run.memory)
    for k, update in zip(chosen, updates, strict=True):
        memory[k] = update.memory
    return replace(run, weights=weights, server=server, broadcasts=broadcasts, memory=tuple(memory))


def _sent_bytes(recipe: Recipe, update: Update) -> int:
    """The trained weights, but for layers that stay, and what terms send."""
    kept = tuple(f"{term.layers}." for term in recipe.algorithm.terms if isinstance(term, Personal))
    sent = [tensor for name, tensor in update.weights.items() if not name.startswith(kept)]
    messages = [tensor for message in update.messages for tensor in message.values()]
    return sum(tensor.nbytes for tensor in (*sent, *messages))


def _participants(recipe: Recipe, round_: Round) -> list[int]:
    count = max(1, round(recipe.participation * round_.members))
    rng = generator(recipe.seed, Stream.PARTICIPATION, round_.index)
    return sorted(rng.choice(round_.members, size=count, replace=False).tolist())


def _identity(recipe: Recipe, data: Split, partition: Partition, hardware: Hardware) -> dict[str, Any]:
    return {
        **recipe.describe(),
        **hardware.describe(),
        "partition": partition.digest,
        "training records": _digest(data.train),
        "test records": _digest(data.test),
    }


def _digest(data: Dataset) -> str:
    sha = hashlib.sha256(data.y.numpy().tobytes())
    sha.update(data.x.contiguous().numpy().tobytes())
    return sha.hexdigest()
