"""A user's package, whose parts are named by import paths."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm
from training.algorithms.weights import Proximal
from training.data.dataset import Dataset, Split
from training.experiments.choices import Deal
from training.partition import Partition
from training.recipe import HeadFactory

MARGIN = 0.5


class Net(nn.Module):
    def __init__(self, shape: tuple[int, ...], *, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], width), nn.BatchNorm1d(width))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def load(folder: Path | None) -> Split:
    """Make two clouds of vectors."""
    del folder
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 2
    x = torch.randn(200, 6, generator=generator) + 2 * y[:, None]
    data = Dataset(x, y, 2, "clouds")
    return Split(data.subset(torch.arange(150)), data.subset(torch.arange(150, 200)))


def deal(*, sizes: tuple[int, ...]) -> Deal:
    ends = np.cumsum(sizes)
    rows = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return lambda data, _: Partition.of(rows, data.y.numpy())


def algorithm(*, mu=0.1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  a user may write no annotations
    return Algorithm(FedAvg(), (Proximal(mu),))


def zero_head(dim: int, classes: int) -> nn.Linear:
    head = nn.Linear(dim, classes)
    nn.init.zeros_(head.weight)
    return head


def head() -> HeadFactory:
    return zero_head


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, label_smoothing=0.1)


partial_loss = partial(functional.cross_entropy, label_smoothing=0.1)
