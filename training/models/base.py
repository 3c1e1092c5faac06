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
        mean: subtracted from each channel of 0..1, (C, 1, 1); or none. No part of the state.
        std: what each channel is divided by after that; the same.
    """

    config: ExtractorConfig
    mean: Tensor | None
    std: Tensor | None

    def __init__(self, layers: nn.Module, dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.dim = dim
        self.expects((), ())

    def expects(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        """Set each channel's moments in 0..1, or none."""
        for name, values in (("mean", mean), ("std", std)):
            moments = torch.tensor(values)[:, None, None] if values else None
            self.register_buffer(name, moments, persistent=False)

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
        if self.mean is None or self.std is None:
            return x
        # One number a pixel, laid out as x is: processors vectorise no others.
        mean, std = (torch.empty_like(x[:1]).copy_(moments) for moments in (self.mean, self.std))
        return (x - mean).div_(std)
