"""Plain stacks of layers: an MLP, small CNNs of the papers, VGG."""

from itertools import pairwise
from math import gcd, prod

from torch import nn

from training.models.layers import Extractor, average_pooling, make_convolution, make_projector
from training.ranges import check_positive

_CONVNET7 = ((32, 1), (64, 2), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2))
_MOON_SMALLEST = 16
# Output channels, kernel and stride of its eight convolutions, none of them padded.
_FEDUV = ((16, 3, 1), (16, 1, 1), (32, 3, 2), (32, 3, 1), (32, 1, 1), (64, 3, 2), (64, 3, 1), (64, 1, 1))
_FEDUV_SMALLEST = 24
# Convolutions of each of the five stages; a max pooling ends each.
_VGG = (64, 128, 256, 512, 512)
_VGG11 = (1, 1, 2, 2, 2)
_VGG13 = (2, 2, 2, 2, 2)


def mlp(shape: tuple[int, ...], *, hidden: int = 128, dim: int = 64) -> Extractor:
    """One hidden layer with ReLU, then a linear map, so that features may be negative."""
    check_positive(hidden=hidden, dim=dim)
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
    check_positive(width=width, dim=dim)
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

    The table flattens the last map of 2×2 pixels at 32 px; a larger map is averaged to 2×2.
    """
    channels = [shape[0], *(after for after, _ in _CONVNET7)]
    blocks = [
        nn.Sequential(*make_convolution(before, after, 3, stride=stride, norm=norm))
        for before, (after, stride) in zip(channels, _CONVNET7, strict=False)
    ]
    return Extractor(nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten()), 4 * channels[-1])


def _pooled_convolution(before: int, after: int) -> list[nn.Module]:
    return [
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.GroupNorm(gcd(8, after), after),
        nn.MaxPool2d(2),  # before the ReLU: the same numbers, a quarter of the work
        nn.ReLU(),
    ]


def moon_cnn(shape: tuple[int, int, int], *, dim: int = 256) -> Extractor:
    """The CNN of MOON (Li et al. 2021), which CCVR calibrates on CIFAR-10 (Luo et al. 2021, Table 6).

    Two 5×5 convolutions of 6 and 16 channels, each with 2×2 max pooling, then 120, 84, 84 and `dim` units. The table's six layers
    are the children of `layers`. The third has 400 inputs at 32 px, 256 at 28 and 2,704 at 64. There is no normalisation, and no
    ReLU after the last layer. Raises ValueError below 16 px.
    """
    check_positive(dim=dim)
    channels, height, width = shape
    if min(height, width) < _MOON_SMALLEST:
        raise ValueError(
            f"moon_cnn needs images of {_MOON_SMALLEST} px or more, not {height}×{width}; take cnn"
        )
    layers = nn.Sequential(
        # Pooling before the ReLU gives the same numbers for a quarter of the work.
        nn.Sequential(nn.Conv2d(channels, 6, 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(
            nn.Flatten(), nn.Linear(16 * _pixels_left(height) * _pixels_left(width), 120), nn.ReLU()
        ),
        nn.Sequential(nn.Linear(120, 84), nn.ReLU()),
        nn.Sequential(nn.Linear(84, 84), nn.ReLU()),
        nn.Linear(84, dim),
    )
    return Extractor(layers, dim)


def _pixels_left(pixels: int) -> int:
    return ((pixels - 4) // 2 - 4) // 2


def feduv_cnn(shape: tuple[int, int, int], *, dim: int = 256, norm: str = "batch") -> Extractor:
    """FedUV's small CNN for STL-10 and PACS (Son et al. 2024, §4.1): eight unpadded convolutions, average pooling, a projector.

    The layers are those of the authors' published code, which uses batch normalisation throughout; the projector does so
    whatever `norm` is. Raises ValueError below 24 px.
    """
    check_positive(dim=dim)
    if min(shape[1:]) < _FEDUV_SMALLEST:
        raise ValueError(
            f"feduv_cnn needs images of {_FEDUV_SMALLEST} px or more, not {shape[1]}×{shape[2]}; take cnn"
        )
    channels = [shape[0], *(after for after, _, _ in _FEDUV)]
    blocks = [
        nn.Sequential(*make_convolution(before, after, kernel, stride=stride, padding=0, norm=norm))
        for before, (after, kernel, stride) in zip(channels, _FEDUV, strict=False)
    ]
    return Extractor(nn.Sequential(*blocks, *average_pooling(), *make_projector(channels[-1], dim)), dim)


def vgg11(shape: tuple[int, int, int], *, norm: str = "group") -> Extractor:
    """Eight 3×3 convolutions in five stages: FedETF's backbone; 512 features."""
    return _make_vgg(shape, _VGG11, norm)


def vgg13(shape: tuple[int, int, int], *, norm: str = "group") -> Extractor:
    """Ten 3×3 convolutions in five stages (Dong et al. 2022, Table 12); 512 features.

    Five poolings leave one pixel at 32 px and 2×2 at 64 px, which are averaged: the table's last pooling of size
    TIN_S would leave 2×2 pixels, too many for its classifier of 512 inputs.
    """
    return _make_vgg(shape, _VGG13, norm)


def _make_vgg(shape: tuple[int, int, int], convolutions: tuple[int, ...], norm: str) -> Extractor:
    stages = []
    for (before, after), count in zip(pairwise((shape[0], *_VGG)), convolutions, strict=True):
        layers = [
            layer
            for i in range(count)
            for layer in make_convolution(after if i else before, after, 3, norm=norm)
        ]
        # Pooling before the last ReLU gives the same numbers. Ceiling: 28 px become 14, 7, 4, 2, 1.
        stages.append(nn.Sequential(*layers[:-1], nn.MaxPool2d(2, ceil_mode=True), layers[-1]))
    return Extractor(nn.Sequential(*stages, *average_pooling()), _VGG[-1])
