from collections.abc import Callable
from math import sqrt

import pytest
import torch

from tests.training.conftest import linear_model
from training.algorithms.aggregations import FedAvg, FedNova, ServerOptimiser
from training.algorithms.base import Algorithm, TrainingRound, Update
from training.algorithms.named import fedopt

# One member at target 4 with η = ¼ and one step: Δ = (4 − w)/4.
STEP = {"rounds": 2, "lr": 0.25, "local_epochs": 1}


def run(quadratic: Callable[..., list[float]], server: ServerOptimiser) -> list[float]:
    return quadratic([4], [1], algorithm=Algorithm(server), **STEP)


def test_momentum_at_the_server_is_fedavgm(quadratic: Callable[..., list[float]]) -> None:
    # m = 1, then ½ + ¾.
    assert run(quadratic, ServerOptimiser("sgd", 1.0, 0.5)) == [1.0, 2.25]


def test_adagrad_adds_squares_up(quadratic: Callable[..., list[float]]) -> None:
    # v = 1 + 1, then plus the square of (4 − w)/4.
    w = 0.5 / (sqrt(2) + 1)
    change = (4 - w) / 4
    v = 2 + change**2
    after = w + 0.5 * change / (sqrt(v) + 1)
    assert run(quadratic, ServerOptimiser("adagrad", 0.5, 0.0, tau=1.0)) == pytest.approx([w, after])


def test_adam_averages_squares(quadratic: Callable[..., list[float]]) -> None:
    # β₁ = β₂ = ½: m = ½, v = ½ + ½; then m = ¼ + ½Δ, v = ½ + ½Δ².
    w = 0.5 * 0.5 / (1 + 1)
    change = (4 - w) / 4
    after = w + 0.5 * (0.25 + 0.5 * change) / (sqrt(0.5 + 0.5 * change**2) + 1)
    server = ServerOptimiser("adam", 0.5, 0.5, beta2=0.5, tau=1.0)
    assert run(quadratic, server) == pytest.approx([w, after])


def test_yogi_moves_by_the_sign(quadratic: Callable[..., list[float]]) -> None:
    # v = 4 − ½·1·sign(4 − 1), then 3.5 − ½Δ².
    w = 0.5 / (sqrt(3.5) + 2)
    change = (4 - w) / 4
    after = w + 0.5 * change / (sqrt(3.5 - 0.5 * change**2) + 2)
    server = ServerOptimiser("yogi", 0.5, 0.0, beta2=0.5, tau=2.0)
    assert run(quadratic, server) == pytest.approx([w, after])


def test_any_aggregation_can_be_inside(quadratic: Callable[..., list[float]]) -> None:
    # FedNova's 77/32 (see there) is the change; the server's momentum doubles nothing in the first round.
    server = ServerOptimiser("sgd", 0.5, 0.9, inner=FedNova())
    result = quadratic(
        [2, 4], [1, 3], rounds=1, lr=0.5, local_epochs=1, batch_size=1, algorithm=Algorithm(server)
    )
    assert result == pytest.approx([77 / 64])


def test_buffers_are_as_the_inner_aggregation_made_them() -> None:
    model = linear_model()
    weights = {name: t.clone() for name, t in model.shared_weights().items()} | {"var": torch.tensor(1.0)}
    server = ServerOptimiser("sgd", 1.0, 0.9, inner=FedAvg())
    state = server.start(model)
    for value in (0.5, 0.25):
        update = Update({**weights, "var": torch.tensor(value)}, records=1, steps=1, loss=0.0)
        weights, state = server.combine(weights, [update], state, TrainingRound(0, 0.1, 1))
        assert float(weights["var"]) == value


def test_the_default_momentum_is_the_papers() -> None:
    momenta = [fedopt(rule=rule).aggregation for rule in ("sgd", "adam", "yogi", "adagrad")]
    assert [of.momentum for of in momenta if isinstance(of, ServerOptimiser)] == [0.9, 0.9, 0.9, 0.0]
