"""CPU seconds of a member's local training under each algorithm, relative to FedAvg's: the cost of penalties.

Algorithms alternate in one process on one thread, and the median counts. Images are random, in CIFAR-10's shape.

    .venv/bin/python -m benchmarks.local_step --output runs/local_step.json
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.models import images
from benchmarks.reports import write_findings
from training.algorithms.base import State, TrainingRound
from training.algorithms.named import ALGORITHMS
from training.local import LocalTrainer, Task
from training.models.config import ExtractorConfig
from training.partition import Partition
from training.recipe import Recipe, fedavg_recipe

NAMES = ("fedavg", "fedprox", "scaffold", "feddyn")
MODELS = {"moon_cnn": (1_280, 2, 9), "mlp": (1_280, 5, 9), "vgg11": (256, 2, 3)}  # records, epochs, turns
BATCH = 64


def turn(trainer: LocalTrainer, recipe: Recipe, weights: State, memory: tuple[State, ...]) -> float:
    """Return the seconds per step of a member's round, with a memory of its own as in all rounds except its first."""
    broadcasts = tuple(term.start(recipe.build(10)) for term in recipe.algorithm.terms)
    task = Task(0, TrainingRound(1, 0.01, 10, 0.9, 10), weights, broadcasts, memory)
    began = time.process_time()
    update = trainer(task)
    return (time.process_time() - began) / update.steps


def measured(architecture: str, records: int, epochs: int, turns: int) -> dict[str, float]:
    data = images(records)
    partition = Partition.of([np.arange(records)], data.y.numpy())
    trainers = {}
    for name in NAMES:
        recipe = fedavg_recipe(
            ExtractorConfig(architecture, (3, 32, 32)),
            algorithm=ALGORITHMS[name](),
            local_epochs=epochs,
            batch_size=BATCH,
        )
        model = recipe.build(10)
        weights = {key: tensor.clone() for key, tensor in model.shared_weights().items()}
        kept: State = {key: torch.full_like(p, 1e-4) for key, p in model.named_parameters()}
        memory = tuple(kept if name in {"scaffold", "feddyn"} else {} for _ in recipe.algorithm.terms)
        trainers[name] = (LocalTrainer(recipe, data, partition), recipe, weights, memory)
    for each in trainers.values():
        turn(*each)
    seconds = [{name: turn(*each) for name, each in trainers.items()} for _ in range(turns)]
    return {name: statistics.median(each[name] for each in seconds) for name in NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/local_step.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for architecture, job in MODELS.items():
        seconds = measured(architecture, *job)
        found[architecture] = {
            "step_ms": {name: round(1e3 * own, 3) for name, own in seconds.items()},
            "over_fedavg": {name: round(own / seconds["fedavg"], 3) for name, own in seconds.items()},
        }
        print(architecture, found[architecture], flush=True)
    write_findings(found, args.output)


if __name__ == "__main__":
    main()
