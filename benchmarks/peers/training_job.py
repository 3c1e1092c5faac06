"""One federation of equal members, trained by `training`, by Flower's simulation or by a plain loop, with the same updates.

Every way calls the same local update, `training.local.LocalTrainer`, on the same records with the same seeds, evaluates the
global model after every round, and ends with the same weights up to the order of additions. Each way is a separate process
(started by `benchmarks.training_speed`), which prints one line of JSON, with the end of each round, and writes the weights.

    benchmarks/peers/.venv/bin/python -m benchmarks.peers.training_job plain --output /tmp/weights.npz
"""

import argparse
import json
import logging
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from training.algorithms.base import TrainingRound
from training.data.dataset import Dataset, Split
from training.evaluate import evaluate_classifier
from training.federated import train
from training.local import LocalTrainer, Task
from training.models.config import ExtractorConfig
from training.partition import Partition
from training.recipe import Recipe, fedavg_recipe


class Job(NamedTuple):
    """The members' number and images of 3 × 32 × 32, and the length of the training."""

    members: int = 10
    records: int = 1_000
    epochs: int = 2
    rounds: int = 5

    @property
    def recipe(self) -> Recipe:
        model = ExtractorConfig("moon_cnn", (3, 32, 32), {})
        return fedavg_recipe(model, rounds=self.rounds, local_epochs=self.epochs, lr=0.01)


@lru_cache
def dealt(job: Job) -> tuple[Split, Partition]:
    """Return random images: their content doesn't affect the cost."""
    rng = np.random.default_rng(0)

    def some(records: int) -> Dataset:
        x = torch.from_numpy(rng.integers(256, size=(records, 3, 32, 32), dtype=np.uint8))
        return Dataset(x, torch.from_numpy(rng.integers(10, size=records)), 10, "random")

    split = Split(some(job.members * job.records), some(500))
    members = tuple(np.split(np.arange(job.members * job.records), job.members))
    return split, Partition.of(members, split.train.y.numpy())


@lru_cache
def trainer(job: Job) -> LocalTrainer:
    """Return a resident trainer: a process keeps its model, its records and its optimiser's code."""
    torch.set_num_threads(1)
    split, partition = dealt(job)
    return LocalTrainer(job.recipe, split.train, partition)


def local_update(job: Job, member: int, index: int, weights: dict[str, torch.Tensor]) -> Any:
    recipe = job.recipe
    round_ = TrainingRound(index, recipe.lr_at(index), job.members, recipe.momentum)
    return trainer(job)(Task(member, round_, weights, (), ()))


def ours(job: Job, workers: int, ended: list[float]) -> dict[str, torch.Tensor]:
    split, partition = dealt(job)
    trained = train(
        job.recipe, split, partition, workers=workers, progress=lambda _: ended.append(time.monotonic())
    )
    return trained.classifier.shared_weights()


def plain(job: Job, workers: int, ended: list[float]) -> dict[str, torch.Tensor]:
    """Train in one process and thread, without a framework."""
    del workers
    split, _ = dealt(job)
    model = job.recipe.build(10)
    weights = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
    for index in range(job.rounds):
        updates = [local_update(job, member, index, weights) for member in range(job.members)]
        weights = {
            name: torch.stack([update.weights[name] for update in updates]).mean(dim=0) for name in weights
        }
        model.load_state_dict(weights, strict=False)
        evaluate_classifier(model, split.test, job.recipe.loss)
        ended.append(time.monotonic())
    return weights


def flower(job: Job, workers: int, ended: list[float]) -> dict[str, torch.Tensor]:
    """Train by Flower's own FedAvg, with server and simulation on Ray: an actor for each worker, each with one processor."""
    # Imported here, so that the other ways don't pay for it.
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: PLC0415
    from flwr.clientapp import ClientApp  # noqa: PLC0415
    from flwr.serverapp import Grid, ServerApp  # noqa: PLC0415
    from flwr.serverapp.strategy import FedAvg  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    client, server = ClientApp(), ServerApp()
    split, _ = dealt(job)
    model = job.recipe.build(10)
    final: dict[str, torch.Tensor] = {}

    @client.train()
    def fit(message: Message, context: Context) -> Message:
        # By name, so that the actor imports it and keeps its records and model.
        from benchmarks.peers import training_job  # noqa: PLC0415

        update = training_job.local_update(
            training_job.Job(*job),
            int(context.node_config["partition-id"]),
            int(message.content["config"]["server-round"]) - 1,
            message.content["arrays"].to_torch_state_dict(),
        )
        answer = {
            "arrays": ArrayRecord(update.weights),
            "metrics": MetricRecord({"num-examples": update.records, "loss": update.loss}),
        }
        return Message(content=RecordDict(answer), reply_to=message)

    def after(round_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        loss, accuracy = evaluate_classifier(model, split.test, job.recipe.loss)
        if round_ > 0:
            ended.append(time.monotonic())
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        del context
        torch.set_num_threads(1)
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=job.members)
        initial = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(initial), num_rounds=job.rounds, evaluate_fn=after
        )
        final.update(result.arrays.to_torch_state_dict())

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=job.members,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": workers, "logging_level": "error", "log_to_driver": False},
        },
    )
    return final


WAYS = {"ours": ours, "plain": plain, "flower": flower}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, required=True, help="the last weights, .npz")
    for name, value in Job()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    job = Job(args.members, args.records, args.epochs, args.rounds)
    ended: list[float] = []
    weights = WAYS[args.way](job, args.workers, ended)
    np.savez(args.output, **{name: tensor.detach().numpy() for name, tensor in weights.items()})
    print(json.dumps({"rounds_s": np.diff(ended).tolist()}), flush=True)


if __name__ == "__main__":
    main()
