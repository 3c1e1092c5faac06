"""The run loop: rounds of local training and aggregation, simulated in one process or several."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from training.algorithms.base import State, TrainingRound, Update
from training.calibrating import MemberFeatures, solve_fixed_head
from training.data.dataset import Dataset, Split
from training.evaluate import evaluate_classifier
from training.hardware import CPU_HARDWARE, Hardware
from training.heads import Classifier
from training.local import Task
from training.partition import Partition
from training.ranges import check_positive
from training.recipe import Recipe
from training.resume import ResumeError, RoundRecord, RunState, Snapshots
from training.seeding import Stream, make_generator
from training.workers import local_training
from veilsum.calibration import CalibrationError


class DivergedError(ArithmeticError):
    """A loss or a weight became infinite or NaN, or no head can be calibrated to the features."""

    def __init__(
        self, round_: int, lr: float, why: str = "a loss or a weight is not a finite number"
    ) -> None:
        super().__init__(f"{why} in round {round_}, at a learning rate of {lr:g}: lower it")
        self.round, self.lr = round_, lr


@dataclass(frozen=True)
class Trained:
    """The global classifier after the last round, in evaluation mode, and how it came about.

    Attributes:
        history: one record per round.
        memory: per member and term, what the member keeps, such as personal layers.
    """

    classifier: Classifier
    history: tuple[RoundRecord, ...]
    recipe: Recipe
    memory: tuple[tuple[State, ...], ...] = ()


def train(
    recipe: Recipe,
    data: Split,
    partition: Partition,
    *,
    progress: Callable[[RoundRecord], None] | None = None,
    within: Callable[[int, int, int], None] | None = None,
    workers: int = 1,
    hardware: Hardware = CPU_HARDWARE,
    snapshot: Path | None = None,
    snapshot_every: int = 1,
    evaluate_every: int = 1,
) -> Trained:
    """Run a recipe's rounds over the members of a partition.

    The result is the same, bit for bit, for the same recipe, data and partition on the same machine's CPU. It does not depend
    on `workers` or on interruptions. A script with workers needs the
    `if __name__ == "__main__":` guard, because every spawned process imports it, and choices that can be pickled.

    Args:
        recipe: every choice, the seed included.
        data: training records, and test records for the history.
        partition: which training records each member holds.
        progress: called with each round's record.
        within: called when a member's update arrives, with the round, the updates so far and the participants.
        workers: processes that train members; 1 trains them in this process.
        hardware: where members train.
        snapshot: a folder that keeps the run between rounds, and from which it resumes, also for more rounds than it was begun
            for.
        snapshot_every: rounds between snapshots; the last round always ends in one.
        evaluate_every: rounds between evaluations on the test records; the last round always ends in one.

    Raises:
        ValueError: if a member holds no records, a number of workers or rounds is below 1, or a recipe with a snapshot cannot be
            described.
        ResumeError: if the snapshot is another experiment's, or of other learning rates.
        DivergedError: if a loss or a weight is not finite, or no head can be calibrated to the features.
    """
    partition.check()
    check_positive(snapshot_every=snapshot_every, evaluate_every=evaluate_every)
    model = recipe.build(data.train.classes)
    test = hardware.move_records(data.test)
    snapshots = Snapshots(snapshot, _run_identity(recipe, data, partition)) if snapshot else None
    run = _restore_or_start(recipe, model, len(partition), snapshots)
    model.to(hardware.device)  # `run`, the server's state, stays on the CPU, and so do updates
    records = int(partition.sizes.sum())
    changed: set[int] = set()  # members that took part since the last snapshot
    with local_training(recipe, data.train, partition, workers, hardware) as train_locally:
        for index in range(len(run.history), recipe.rounds):
            started = time.perf_counter()
            round_ = TrainingRound(index, recipe.lr_at(index), len(partition), recipe.momentum, records)
            chosen = draw_participants(recipe, round_)
            run, local_loss, sent = _members_round(recipe, run, round_, chosen, train_locally, within)
            changed.update(chosen)
            model.load_state_dict(run.model, strict=False)
            if recipe.calibrates_after(index):
                held = MemberFeatures.compute_features(model, hardware.move_records(data.train), partition)
                try:
                    head, more = solve_fixed_head(held)
                except CalibrationError as error:
                    raise DivergedError(
                        index + 1, round_.lr, "no head can be calibrated to the features"
                    ) from error
                run, sent = replace(run, head={"head.weight": head}), sent + more
                model.load_state_dict(run.model, strict=False)
            test_loss = accuracy = nan
            last = index + 1 == recipe.rounds
            if last or (index + 1) % evaluate_every == 0:
                test_loss, accuracy = evaluate_classifier(model, test, recipe.loss)
                if not isfinite(test_loss):  # after the last local step, or the server's
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
            if snapshots is not None and (last or (index + 1) % snapshot_every == 0):
                _save_snapshot(snapshots, run, changed)
                changed.clear()
            if progress is not None:
                progress(record)
    model.load_state_dict(run.model, strict=False)
    return Trained(model.cpu().eval(), run.history, recipe, run.memory)


def _restore_or_start(
    recipe: Recipe, model: Classifier, members: int, snapshots: Snapshots | None
) -> RunState:
    """Return the last snapshot's state, or that before the first round."""
    run = None if snapshots is None else _load_snapshot(recipe, snapshots, members)
    return _start_run(recipe, model, members) if run is None else run


def _load_snapshot(recipe: Recipe, snapshots: Snapshots, members: int) -> RunState | None:
    """Load a snapshot whose rounds are the recipe's first ones. Raises ResumeError if they are not."""
    run = snapshots.load_run(members)
    if run is None:
        return None
    if len(run.history) > recipe.rounds:
        raise ResumeError(
            f"the snapshot holds {len(run.history)} rounds, and {recipe.rounds} are wanted: choose another folder"
        )
    for record in run.history:
        if record.lr != recipe.lr_at(record.round - 1):
            raise ResumeError(
                f"round {record.round} was trained at the rate {record.lr:g}, and a run of {recipe.rounds} rounds takes "
                f"{recipe.lr_at(record.round - 1):g} there: only the schedules constant and multi-step can go on for more rounds; "
                "choose another folder to start over"
            )
    return replace(run, history=tuple(replace(record, rounds=recipe.rounds) for record in run.history))


def _save_snapshot(snapshots: Snapshots, run: RunState, changed: Iterable[int]) -> None:
    for k in sorted(changed):
        snapshots.put_member(k, run.memory[k], len(run.history))
    snapshots.commit_run(run)


def _start_run(recipe: Recipe, model: Classifier, members: int) -> RunState:
    nothing: tuple[State, ...] = tuple({} for _ in recipe.algorithm.terms)
    return RunState(
        weights={name: tensor.clone() for name, tensor in model.shared_weights().items()},
        server=recipe.algorithm.aggregation.start(model),
        broadcasts=tuple(term.start(model) for term in recipe.algorithm.terms),
        memory=(nothing,) * members,
        history=(),
    )


def _members_round(
    recipe: Recipe,
    run: RunState,
    round_: TrainingRound,
    chosen: Sequence[int],
    train_locally: Callable[[Iterable[Task]], Iterable[Update]],
    within: Callable[[int, int, int], None] | None,
) -> tuple[RunState, float, int]:
    """Train and aggregate; return the new state, the mean local loss by records, and the most bytes that a participant sent."""
    tasks = (Task(k, round_, run.model, run.broadcasts, run.memory[k]) for k in chosen)
    updates = []
    for update in train_locally(tasks):
        updates.append(update)
        if within is not None:
            within(round_.index + 1, len(updates), len(chosen))
    local_loss = float(np.average([u.loss for u in updates], weights=[u.records for u in updates]))
    run = _aggregate_updates(recipe, run, round_, chosen, updates)
    if not (isfinite(local_loss) and all(bool(each.isfinite().all()) for each in run.weights.values())):
        raise DivergedError(round_.index + 1, round_.lr)
    return run, local_loss, max(_sent_bytes(recipe, update) for update in updates)


def _aggregate_updates(
    recipe: Recipe, run: RunState, round_: TrainingRound, chosen: Sequence[int], updates: Sequence[Update]
) -> RunState:
    terms = recipe.algorithm.terms
    weights, server = recipe.algorithm.combine(run.weights, updates, run.server, round_)
    broadcasts = tuple(
        term.reduce(broadcast, [update.messages[i] for update in updates], round_)
        for i, (term, broadcast) in enumerate(zip(terms, run.broadcasts, strict=True))
    )
    memory = list(run.memory)
    for k, update in zip(chosen, updates, strict=True):
        memory[k] = update.memory
    return replace(run, weights=weights, server=server, broadcasts=broadcasts, memory=tuple(memory))


def _sent_bytes(recipe: Recipe, update: Update) -> int:
    """Count the trained weights and the terms' messages, except those on layers that stay with the member."""
    keeps = recipe.algorithm.keeps
    parts = (update.weights, *update.messages)
    return sum(tensor.nbytes for part in parts for name, tensor in part.items() if not keeps(name))


def draw_participants(recipe: Recipe, round_: TrainingRound) -> list[int]:
    """Draw the members that train in a round, sorted."""
    count = max(1, round(recipe.participation * round_.members))
    rng = make_generator(recipe.seed, Stream.PARTICIPATION, round_.index)
    return sorted(rng.choice(round_.members, size=count, replace=False).tolist())


def _run_identity(recipe: Recipe, data: Split, partition: Partition) -> dict[str, Any]:
    described = recipe.describe()
    del described["rounds"]  # a run may go on for more
    return {
        **described,
        "partition": partition.digest,
        "training records": _data_digest(data.train),
        "test records": _data_digest(data.test),
    }


def _data_digest(data: Dataset) -> str:
    sha = hashlib.sha256(data.y.numpy().tobytes())
    sha.update(data.x.contiguous().numpy().tobytes())
    return sha.hexdigest()
