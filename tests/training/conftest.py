from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.algorithms.base import Site, State, TrainingRound
from training.data.dataset import Dataset, Split
from training.federated import train
from training.heads import Classifier
from training.models.architectures import ARCHITECTURES
from training.models.config import ExtractorConfig
from training.models.layers import Extractor
from training.partition import Partition
from training.recipe import Constant, Recipe

Quadratic: TypeAlias = Callable[..., list[float]]


def zero_head(dim: int, classes: int) -> nn.Linear:
    head = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(head.weight)
    return head


def half_square(logits: Tensor, labels: Tensor) -> Tensor:
    return 0.5 * (logits.squeeze(1) - labels).square().mean()


@pytest.fixture
def quadratic(monkeypatch: pytest.MonkeyPatch) -> Quadratic:
    """Train members with the objective ½(w − target)² in one scalar w, which starts at 0; return w after each round.

    Every input is 1, so the logit is w itself, and a member's target is its label. A local epoch is one
    full step of gradient descent.
    """
    monkeypatch.setitem(ARCHITECTURES, "identity", lambda shape: Extractor(nn.Identity(), 1))

    def run(targets: Sequence[int], sizes: Sequence[int], *, rounds: int, **choices: Any) -> list[float]:
        y = torch.tensor(np.repeat(targets, sizes))
        data = Dataset(torch.ones(len(y), 1), y, max(targets) + 1, "quadratic")
        ends = np.cumsum(sizes)
        members = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        recipe: dict[str, Any] = {
            "model": ExtractorConfig("identity", (1, 1, 1)),
            "head": zero_head,
            "loss": half_square,
            "schedule": Constant(),
            "batch_size": len(y),
            "momentum": 0.0,
            "weight_decay": 0.0,
        }
        results = []
        for last in range(1, rounds + 1):
            experiment = Recipe(**(recipe | choices), rounds=last)
            trained = train(experiment, Split(data, data), Partition.of(members, y.numpy()))
            results.append(float(trained.classifier.head.weight.detach()))
        return results

    return run


def linear_model(weight: Tensor | None = None, classes: int = 2) -> Classifier:
    """Make a linear map from two inputs to two features, the identity by default, with an identity head."""
    layer, head = nn.Linear(2, 2, bias=False), nn.Linear(2, classes, bias=False)
    layer.load_state_dict({"weight": torch.eye(2) if weight is None else weight})
    head.load_state_dict({"weight": torch.eye(classes, 2)})
    return Classifier(Extractor(layer, 2), head, normalise=False)


EXTRACTOR = "extractor.layers.weight"


def site_of(model: Classifier, x: Tensor, y: Tensor, **changes: Any) -> Site:
    """Make a member that holds these records and has just received the model."""
    received = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
    values: dict[str, Any] = {
        "received": received,
        "origin": changes.get("received", received),
        "broadcast": State(),
        "memory": State(),
        "label_counts": torch.bincount(y, minlength=model.head.out_features),
        "round": TrainingRound(0, 0.1, members=2),
    }
    records = Dataset(x, y, model.head.out_features, "records")
    return Site(model=model, records=records, **values | changes)
