import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm
from training.algorithms.weights import Proximal
from training.heads import FixedHead, LearnedHead
from training.models.config import ExtractorConfig
from training.recipe import (
    Constant,
    Cosine,
    MultiStep,
    Recipe,
    cross_entropy,
    fedavg_recipe,
    mean_squared_error,
    positive_hinge,
    spherefed_recipe,
)

MLP = ExtractorConfig("mlp", (1, 8, 8), {"dim": 16})


def test_the_presets_are_the_papers_choices() -> None:
    plain, sphere = fedavg_recipe(MLP), spherefed_recipe(MLP)
    assert (plain.normalise, plain.loss) == (False, cross_entropy)
    assert isinstance(plain.build(10).head, LearnedHead)
    assert (sphere.normalise, sphere.loss) == (True, mean_squared_error)
    assert isinstance(sphere.build(10).head, FixedHead)
    assert sphere.algorithm == plain.algorithm == Algorithm(FedAvg())


def test_the_seed_decides_the_initial_weights_and_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (fedavg_recipe(MLP, seed=seed).build(10).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rounds", 0),
        ("local_epochs", 0),
        ("batch_size", -1),
        ("lr", float("nan")),
        ("participation", 0.0),
        ("participation", 1.1),
        ("calibrate_every", 0),
    ],
)
def test_a_number_out_of_range_is_refused(name: str, value: float) -> None:
    choice: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        Recipe(model=MLP, **choice)


def test_a_description_is_json_and_holds_every_choice() -> None:
    described = spherefed_recipe(MLP, algorithm=Algorithm(FedAvg(), (Proximal(0.1),)), seed=7).describe()
    assert json.loads(json.dumps(described)) == described
    assert described["head"] == "orthonormal_head"
    assert described["loss"] == "mean_squared_error"
    assert described["model"]["options"] == {"dim": 16}
    assert described["algorithm"]["terms"] == [{"kind": "Proximal", "mu": 0.1, "over": "all"}]
    assert described["seed"] == 7


def scaled(scale: float) -> Callable[[int, int], FixedHead]:
    return lambda dim, classes: FixedHead(scale * torch.eye(classes, dim))


@pytest.mark.parametrize(
    "head",
    [lambda dim, classes: LearnedHead(dim, classes), partial(LearnedHead, bias=False), scaled(2.0)],  # noqa: PLW0108
)
def test_a_function_without_a_name_of_its_own_describes_nothing(head: Any) -> None:
    recipe = fedavg_recipe(MLP, head=head)
    assert recipe.build(10).head.out_features == 10
    with pytest.raises(ValueError, match="name"):
        recipe.describe()


def test_mean_squared_error_on_a_worked_matrix() -> None:
    # Each row is 1/C · ‖Wz − onehot‖², C = 3, then the mean of the rows.
    logits = torch.tensor([[0.5, 0.25, -1.0], [0.0, 2.0, 1.0]])
    rows = [(0.25 + 0.0625 + 1.0) / 3, (0.0 + 4.0 + 0.0) / 3]
    loss = mean_squared_error(logits, torch.tensor([0, 2]))
    torch.testing.assert_close(loss, torch.tensor(sum(rows) / 2))


def test_positives_alone_count_in_fedaws() -> None:
    # Cosines 0.5 and 0.95 to their own classes: 0.4² and nothing, whatever the others are.
    logits = torch.tensor([[0.5, 0.99, -1.0], [0.2, 0.7, 0.95]])
    torch.testing.assert_close(positive_hinge(logits, torch.tensor([0, 2])), torch.tensor(0.08))


def test_factors() -> None:
    assert [Constant().factor(t, 4) for t in range(4)] == [1] * 4
    assert [Cosine().factor(t, 3) for t in range(3)] == pytest.approx([1, 0.75, 0.25])
    steps = MultiStep(milestones=(1, 3), gamma=0.5)
    assert [steps.factor(t, 4) for t in range(4)] == [1, 0.5, 0.5, 0.25]
