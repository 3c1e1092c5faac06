from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.digits import DIGITS, MLP
from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm
from training.algorithms.named import ALGORITHMS
from training.federated import train
from training.heads import NormalisedHead, Simplex
from training.partition import Partition
from training.recipe import fedavg_recipe

EQUAL = Partition.of(np.split(np.arange(1344), 3), DIGITS.train.y.numpy())
NEEDED = {"fedrep": {"head_epochs": 1}}
NEUTRAL: dict[str, dict[str, float]] = {
    "fedprox": {"mu": 0.0},
    "clsprox": {"mu": 0.0},
    "moon": {"mu": 0.0},
    "fedmmd": {"weight": 0.0},
    "fedrs": {"alpha": 1.0},
    "gmv": {"alpha": 0.0},
    "feduv": {"variance": 0.0, "uniformity": 0.0},
    "fedavgm": {"momentum": 0.0, "lr": 1.0},
    "fedaws": {"lr": 0.0},
}


def algorithm(name: str, **options: Any) -> Algorithm:
    make: Callable[..., Algorithm] = ALGORITHMS[name]
    return make(**NEEDED.get(name, {}), **options)


@cache
def weights(name: str) -> dict[str, torch.Tensor]:
    own = algorithm(name, **NEUTRAL.get(name, {}))
    recipe = fedavg_recipe(MLP, rounds=2, local_epochs=1, batch_size=128, algorithm=own)
    state: dict[str, torch.Tensor] = train(recipe, DIGITS, EQUAL).classifier.state_dict()
    return state


@pytest.mark.parametrize("name", NEUTRAL)
def test_without_its_weight_a_method_is_fedavg(name: str) -> None:
    torch.testing.assert_close(weights(name), weights("fedavg"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns(name: str) -> None:
    head = NormalisedHead if name in {"fedaws", "fedrep"} else Simplex()
    recipe = fedavg_recipe(
        MLP, rounds=2, local_epochs=2, lr=0.05, batch_size=128, head=head, algorithm=algorithm(name)
    )
    first, last = train(recipe, DIGITS, EQUAL).history
    if name != "moon":  # whose contrast joins the loss in the second round
        assert last.local_loss < first.local_loss
    assert last.accuracy > (0.12 if name == "fedrep" else 0.2)


def test_terms_of_several_methods_go_together() -> None:
    both = algorithm("scaffold").plus(*algorithm("feduv").terms)
    assert [type(term).__name__ for term in both.terms] == ["ControlVariates", "ClassVariance", "Uniformity"]
    assert both.aggregation == FedAvg(uniform=True)
    assert algorithm("feduv", uniformity=0).terms == algorithm("feduv").terms[:1]
