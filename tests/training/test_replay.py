from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.digits import DIGITS
from training.algorithms.base import State
from training.algorithms.named import ALGORITHMS, LOCAL_ALGORITHMS
from training.federated import train
from training.hardware import Hardware
from training.models.config import ExtractorConfig
from training.partition import dirichlet_partition
from training.recipe import fedavg_recipe
from training.replay import Eager, Replay

PARTITION = dirichlet_partition(DIGITS.train.y[:600].numpy(), 3, 0.5, np.random.default_rng(0), min_size=75)
MLP = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 16, "dim": 12})


class Shared(Eager):
    """Like a graph, use the first member's step for every member of the round."""

    hold_tensors = Replay.hold_tensors
    others = 0

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self._states = dict[Hashable, State]()
        self._captured = dict[Hashable, Callable[..., None]]()
        self._round = -1

    def step_for(self, round_: int, key: Hashable, step: Callable[..., None]) -> Callable[..., None]:
        if round_ != self._round:
            self._round = round_
            self._captured.clear()
        taken = self._captured.setdefault(key, step)
        Shared.others += taken is not step
        return taken


@pytest.mark.parametrize(
    ("name", "augment"),
    [(name, name == "fedmmd") for name in ("fedavg", "feddyn", *sorted(LOCAL_ALGORITHMS))] + [("moon", True)],
)
def test_a_step_captured_from_one_member_serves_all_of_the_round(
    name: str,
    augment: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[str, Any] = {"fedrep": {"head_epochs": 1}, "gmv": {"warmup": 2}}.get(name, {})
    recipe = fedavg_recipe(
        MLP,
        algorithm=ALGORITHMS[name](**options),
        rounds=3,
        local_epochs=2,
        lr=0.05,
        batch_size=64,
        participation=0.67,
        augment=augment,
    )
    alone = train(recipe, DIGITS, PARTITION)
    monkeypatch.setattr("training.local.Eager", Shared)
    monkeypatch.setattr(Hardware, "is_cpu", False)
    monkeypatch.setattr(Shared, "others", 0)
    shared = train(recipe, DIGITS, PARTITION)
    assert Shared.others
    torch.testing.assert_close(shared.classifier.state_dict(), alone.classifier.state_dict(), rtol=0, atol=0)
