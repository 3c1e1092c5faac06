"""The run loop: rounds of local training and aggregation, simulated on one machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from training.algorithms import Round
from training.evaluate import evaluate
from training.local import Task
from training.seeding import Stream, generator
from training.workers import local_training

if TYPE_CHECKING:
    from collections.abc import Callable

    from training.algorithms import State
    from training.data import Split
    from training.heads import Classifier
    from training.partition import Partition
    from training.recipe import Recipe


@dataclass(frozen=True)
class RoundRecord:
    """One round's line in the history.

    Attributes:
        round: its number, from 1.
        rounds: how many there will be.
        lr: the learning rate it was trained with.
        local_loss: the participants' mean local objective, weighted by records.
        test_loss: the recipe's loss of the new global model on the test records.
        accuracy: that model's accuracy on the test records, in 0..1.
        seconds: wall-clock time.
    """

    round: int
    rounds: int
    lr: float
    local_loss: float
    test_loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Trained:
    """The global classifier after the last round, and all it takes to train it again.

    Attributes:
        classifier: in evaluation mode.
        history: a record a round.
        recipe: the experiment.
        partition_digest: `Partition.digest` of who held what.
    """

    classifier: Classifier
    history: tuple[RoundRecord, ...]
    recipe: Recipe
    partition_digest: str


def train(
    recipe: Recipe,
    data: Split,
    partition: Partition,
    *,
    progress: Callable[[RoundRecord], None] | None = None,
    workers: int = 1,
) -> Trained:
    """Run a recipe's rounds over the members of a partition.

    The result is the same, bit for bit, for the same recipe, data and partition on the same machine, and
    does not depend on `workers`. A script that asks for workers needs the `if __name__ == "__main__":` guard,
    for every spawned process imports it, and choices that can be pickled.

    Args:
        recipe: every choice, the seed included.
        data: records to train on and records for the history's accuracy.
        partition: which training records each member holds.
        progress: called with each round's record as it is made.
        workers: how many processes train members; 1 trains them here.

    Raises:
        ValueError: if a member holds no records, or `workers` < 1.
    """
    if not partition.sizes.all():
        raise ValueError("every member must hold a record; draw the partition with min_size >= 1")
    aggregation, terms = recipe.algorithm.aggregation, recipe.algorithm.terms
    model = recipe.build(data.train.classes)
    weights = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
    state = aggregation.start(weights)
    broadcasts = tuple(term.start(model) for term in terms)
    nothing: tuple[State, ...] = tuple({} for _ in terms)
    memory = dict.fromkeys(range(len(partition)), nothing)
    history = []
    with local_training(recipe, data.train, partition, workers) as train_locally:
        for index in range(recipe.rounds):
            started = time.perf_counter()
            round_ = Round(index, recipe.lr_at(index), len(partition))
            chosen = _participants(recipe, round_)
            updates = list(
                train_locally(Task(k, round_, weights, broadcasts, memory[k]) for k in chosen),
            )
            weights, state = aggregation.combine(weights, updates, state, round_)
            broadcasts = tuple(
                term.reduce(broadcast, [update.messages[i] for update in updates], round_)
                for i, (term, broadcast) in enumerate(zip(terms, broadcasts, strict=True))
            )
            memory |= {k: update.memory for k, update in zip(chosen, updates, strict=True)}
            model.load_state_dict(weights, strict=False)
            test_loss, accuracy = evaluate(model, data.test, recipe.loss)
            local_loss = float(
                np.average([u.loss for u in updates], weights=[u.records for u in updates]),
            )
            record = RoundRecord(
                round=index + 1,
                rounds=recipe.rounds,
                lr=round_.lr,
                local_loss=local_loss,
                test_loss=test_loss,
                accuracy=accuracy,
                seconds=time.perf_counter() - started,
            )
            history.append(record)
            if progress is not None:
                progress(record)
    return Trained(model.eval(), tuple(history), recipe, partition.digest)


def _participants(recipe: Recipe, round_: Round) -> list[int]:
    count = max(1, round(recipe.participation * round_.members))
    rng = generator(recipe.seed, Stream.PARTICIPATION, round_.index)
    return sorted(rng.choice(round_.members, size=count, replace=False).tolist())
