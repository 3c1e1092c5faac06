from collections.abc import Callable

import pytest
import torch

from training.algorithms.aggregations import FedAvg, FedNova
from training.algorithms.base import Algorithm, TrainingRound, Update


def test_unequal_steps_solved_by_hand(quadratic: Callable[..., list[float]]) -> None:
    # Targets 2 and 4, η = ½. The first member takes one step, to 1; the second two, 2 and 3. p = ¼ and ¾, so
    # τ_eff = ¼ + ¾·2 = 7/4 and the directions are 1 and 3/2: 7/4·(¼ + ¾·3/2). FedAvg would come to 2.5.
    choices = {"rounds": 1, "lr": 0.5, "local_epochs": 1, "batch_size": 1}
    run = quadratic([2, 4], [1, 3], algorithm=Algorithm(FedNova()), **choices)
    assert run == pytest.approx([77 / 32])
    assert quadratic([2, 4], [1, 3], algorithm=Algorithm(FedAvg()), **choices) == [2.5]


def test_momentum_is_normalised_by_what_it_adds(quadratic: Callable[..., list[float]]) -> None:
    # As above with ρ = ½: one step still comes to 1; the second member's velocity is −4, then −2 − 2, so it comes to 4.
    # a = (1 + ½, 1) for two steps, ‖a‖₁ = 5/2, so the directions are 1 and 8/5 and τ_eff = ¼ + ¾·5/2 = 17/8.
    algorithm = Algorithm(FedNova())
    choices = {"rounds": 1, "lr": 0.5, "local_epochs": 1, "batch_size": 1, "momentum": 0.5}
    run = quadratic([2, 4], [1, 3], algorithm=algorithm, **choices)
    assert run == pytest.approx([17 / 8 * (1 / 4 + 3 / 4 * 8 / 5)])


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_mass_of_gradients_is_the_way_of_unit_gradients(rho: float, steps: int) -> None:
    velocity = way = 0.0
    for _ in range(steps):
        velocity = rho * velocity + 1
        way += velocity
    assert TrainingRound(0, 0.1, 1, rho).gradient_mass(steps) == pytest.approx(way)


def test_buffers_are_averaged_and_not_stepped() -> None:
    updates = [
        Update({"w": torch.tensor(3.0), "running_var": torch.tensor(4.0)}, records=1, steps=1, loss=0.0),
        Update({"w": torch.tensor(3.0), "running_var": torch.tensor(2.0)}, records=1, steps=3, loss=0.0),
    ]
    before = {"w": torch.tensor(1.0), "running_var": torch.tensor(9.0)}
    weights, state = FedNova().combine(before, updates, {"w": torch.zeros(())}, TrainingRound(0, 0.1, 2))
    assert float(weights["running_var"]) == 3
    # Directions 2 and 2/3, τ_eff = 2: 1 + 2·(2 + 2/3)/2.
    assert float(weights["w"]) == pytest.approx(11 / 3)
    assert set(state) == {"w"}
