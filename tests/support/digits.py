"""Small runs on scikit-learn's digits."""

from collections.abc import Callable

import numpy as np

from training.data.catalogue import load_digits_dataset
from training.data.dataset import Split
from training.federated import train
from training.models.config import ExtractorConfig
from training.partition import dirichlet_partition, iid_partition
from training.recipe import fedavg_recipe
from training.results import Calibration, Data, Deal, Machine, RunCost, RunResult, history_lines, per_class
from training.resume import RoundRecord

DIGITS = load_digits_dataset()
MLP = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 8, "dim": 10})
LARGER = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 32, "dim": 16})
SIX = dirichlet_partition(DIGITS.train.y.numpy(), 6, 0.5, np.random.default_rng(0), min_size=10)
"""A partition of the digits among six members."""


class KilledError(Exception):
    pass


def kill_after(rounds: int) -> Callable[[RoundRecord], None]:
    def progress(record: RoundRecord) -> None:
        if record.round == rounds:
            raise KilledError

    return progress


def result(seed: int = 0, experiment: str = "digits") -> RunResult:
    data = Split(DIGITS.train.subset(DIGITS.train.y.argsort()[::9]), DIGITS.test)
    partition = iid_partition(data.train.y.numpy(), 3, np.random.default_rng(seed))
    recipe = fedavg_recipe(
        ExtractorConfig("mlp", (1, 8, 8), {"dim": 16}), rounds=2, local_epochs=1, seed=seed
    )
    trained = train(recipe, data, partition)
    return RunResult(
        experiment=experiment,
        method="FedAvg",
        seed=seed,
        recipe=recipe.describe(),
        data=Data.describe_split(data, partition, stands_in_for="CIFAR-10"),
        deal=Deal.describe_partition(partition, "iid"),
        history=history_lines(trained.history),
        accuracy=trained.history[-1].accuracy,
        per_class=per_class(np.array([0.5, np.nan])),
        calibrations=(Calibration(kind="ffc", accuracy=0.75, options={"ridge": 0.1}),),
        cost=RunCost(wall_s=1.5),
        environment=Machine.describe_machine(),
    )
