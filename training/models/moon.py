"""The CNN of MOON (Li et al. 2021), which CCVR calibrates on CIFAR-10 (Luo et al. 2021, Table 6)."""

from __future__ import annotations

from torch import nn

from training.models.base import Extractor

_SMALLEST = 16


def moon_cnn(shape: tuple[int, int, int], *, dim: int = 256) -> Extractor:
    """Two 5×5 convolutions of 6 and 16 channels, each with 2×2 max pooling, then 120, 84, 84 and `dim` units.

    The table's six layers are the children of `layers`, so an analysis by layer speaks of the paper's. The third
    has 400 inputs at 32 px, 256 at 28 and 2,704 at 64. Nothing normalises, and the features end without a ReLU.

    Raises:
        ValueError: if the input is smaller than 16 px, for then the second convolution has nothing to see.
    """
    channels, height, width = shape
    if min(height, width) < _SMALLEST:
        raise ValueError(f"moon_cnn needs images of {_SMALLEST} px or more, not {height}×{width}; take cnn")
    layers = nn.Sequential(
        # The maximum first: the same numbers as after ReLU, and a quarter of them to rectify.
        nn.Sequential(nn.Conv2d(channels, 6, 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(16 * _left(height) * _left(width), 120), nn.ReLU()),
        nn.Sequential(nn.Linear(120, 84), nn.ReLU()),
        nn.Sequential(nn.Linear(84, 84), nn.ReLU()),
        nn.Linear(84, dim),
    )
    return Extractor(layers, dim)


def _left(pixels: int) -> int:
    return ((pixels - 4) // 2 - 4) // 2
