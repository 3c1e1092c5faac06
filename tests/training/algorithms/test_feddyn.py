from collections.abc import Callable

import torch

from training.algorithms.base import TrainingRound, Update
from training.algorithms.named import ALGORITHMS
from training.algorithms.weights import DynamicCorrection


def test_feddyn_solved_by_hand(quadratic: Callable[..., list[float]]) -> None:
    # Targets 0 and 4, α = 1, η = ½, one step; the members' sizes don't matter.
    # TrainingRound 1: 0 and 2, so h_k = 0 and −2, h = −1 and w = 1 + 1.
    # TrainingRound 2, gradients w − 0 − 0 and w − 4 + 2: 1 and 2, so h_k = 1 and −2, h = −½ and w = 1.5 + ½: the optimum stays.
    # TrainingRound 3, gradients 2 − 0 − 1 and 2 − 4 + 2: 1.5 and 2, h = −½ + ¼ and w = 1.75 + ¼.
    algorithm = ALGORITHMS["feddyn"](alpha=1.0)
    run = quadratic([0, 4], [1, 3], rounds=3, lr=0.5, local_epochs=1, algorithm=algorithm)
    assert run == [2.0, 2.0, 2.0]


def test_the_servers_part_counts_the_absent() -> None:
    # One of four took part and moved by 2: h = −α·¼·2, and w = 3 + ½.
    updates = [Update({"w": torch.tensor(3.0)}, records=1, steps=1, loss=0.0)]
    server = DynamicCorrection(alpha=0.1)
    weights, state = server.combine(
        {"w": torch.tensor(1.0)}, updates, {"w": torch.tensor(0.0)}, TrainingRound(0, 0.1, 4)
    )
    torch.testing.assert_close(state["w"], torch.tensor(-0.05))
    torch.testing.assert_close(weights["w"], torch.tensor(3.5))
