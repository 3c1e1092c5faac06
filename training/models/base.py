"""What every architecture returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from training.models.config import ExtractorConfig


class Extractor(nn.Module):
    """A network that ends in a feature vector.

    Attributes:
        dim: the length l of the feature vector.
        layers: maps (n, channels, height, width) to (n, dim); where it is sequential, its children are the layers
            or blocks of the paper's table, in order.
        config: what it was built from; set by `ExtractorConfig.build`.
        mean: subtracted from each channel of 0..1; none where empty.
        std: what each channel is divided by after that.
    """

    config: ExtractorConfig

    def __init__(self, layers: nn.Module, dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.dim = dim
        self.mean: tuple[float, ...] = ()
        self.std: tuple[float, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """The features of x, of shape (n, dim).

        Bytes are scaled here, batch by batch, so that images stay a quarter of float32's size in memory.
        """
        features: Tensor = self.layers(self.scaled(x))
        return features

    def scaled(self, x: Tensor) -> Tensor:
        """What the first layer sees: x / 255 where x is uint8, less the mean, over the deviation."""
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        if self.mean:
            x = (x - x.new_tensor(self.mean)[:, None, None]) / x.new_tensor(self.std)[:, None, None]
        return x
