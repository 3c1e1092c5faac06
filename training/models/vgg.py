"""VGG-11 and VGG-13 for small images (Simonyan and Zisserman 2015, configurations A and B), without the large layers above."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from training.models.base import Extractor
from training.models.layers import convolution, pooled

# Convolutions of each of the five stages; a max pooling ends each.
_CHANNELS = (64, 128, 256, 512, 512)
_VGG11 = (1, 1, 2, 2, 2)
_VGG13 = (2, 2, 2, 2, 2)


def vgg11(shape: tuple[int, int, int], *, norm: str = "group") -> Extractor:
    """Eight 3×3 convolutions in five stages: FedETF's backbone; 512 features."""
    return _vgg(shape, _VGG11, norm)


def vgg13(shape: tuple[int, int, int], *, norm: str = "group") -> Extractor:
    """Ten 3×3 convolutions in five stages (Dong et al. 2022, Table 12); 512 features.

    Five poolings leave one pixel at 32 px and 2×2 at 64 px, whose mean is taken: the table's last pooling of size
    TIN_S would leave 2×2 pixels, which its classifier of 512 inputs has no room for.
    """
    return _vgg(shape, _VGG13, norm)


def _vgg(shape: tuple[int, int, int], convolutions: tuple[int, ...], norm: str) -> Extractor:
    # Ceiling: 28 px become 14, 7, 4, 2, 1.
    stages = [
        nn.Sequential(
            *(
                layer
                for i in range(count)
                for layer in convolution(after if i else before, after, 3, norm=norm)
            ),
            nn.MaxPool2d(2, ceil_mode=True),
        )
        for (before, after), count in zip(pairwise((shape[0], *_CHANNELS)), convolutions, strict=True)
    ]
    return Extractor(nn.Sequential(*stages, *pooled()), _CHANNELS[-1])
