"""Plain stacks: an MLP, a small CNN for small images, SphereFed's ConvNet-7."""

from __future__ import annotations

from math import gcd, prod

from torch import nn

from training.models.base import Extractor
from training.models.layers import convolution

_CONVNET7 = ((32, 1), (64, 2), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2))


def mlp(shape: tuple[int, int, int], *, hidden: int = 128, dim: int = 64) -> Extractor:
    """Two layers: hidden units with ReLU, then a linear map, so that features may point anywhere."""
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), hidden),
        nn.GroupNorm(1, hidden),
        nn.ReLU(),
        nn.Linear(hidden, dim),
    )
    return Extractor(layers, dim)


def cnn(shape: tuple[int, int, int], *, width: int = 16, dim: int = 64) -> Extractor:
    """Two 3×3 convolutions of `width` and 2·`width` channels for 8×8 to 32×32 images.

    Each is followed by group normalisation, ReLU and 2×2 max pooling; a 2×2 grid of averages and a linear
    map give the features.
    """
    layers = nn.Sequential(
        *_pooled_convolution(shape[0], width),
        *_pooled_convolution(width, 2 * width),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, dim),
    )
    return Extractor(layers, dim)


def convnet7(shape: tuple[int, int, int], *, norm: str = "group") -> Extractor:
    """Seven 3×3 convolutions, four of stride 2 (Dong et al. 2022, Table 11); 1,024 features.

    The table flattens the last map of 2×2 pixels at 32 px; of a larger one a 2×2 grid of averages is taken.
    """
    channels = [shape[0], *(after for after, _ in _CONVNET7)]
    blocks = [
        nn.Sequential(*convolution(before, after, 3, stride=stride, norm=norm))
        for before, (after, stride) in zip(channels, _CONVNET7, strict=False)
    ]
    return Extractor(nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten()), 4 * channels[-1])


def _pooled_convolution(before: int, after: int) -> list[nn.Module]:
    return [
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.GroupNorm(gcd(8, after), after),
        nn.MaxPool2d(2),  # first: the same numbers, a quarter of them to rectify
        nn.ReLU(),
    ]
