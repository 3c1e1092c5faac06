"""FedUV's small CNN for STL-10 and PACS (Son et al. 2024, §4.1): ten layers with the projector."""

from __future__ import annotations

from torch import nn

from training.models.base import Extractor
from training.models.layers import convolution, pooled, projector

# Output channels, kernel and stride of its eight convolutions, none of them padded.
_LAYERS = ((16, 3, 1), (16, 1, 1), (32, 3, 2), (32, 3, 1), (32, 1, 1), (64, 3, 2), (64, 3, 1), (64, 1, 1))
_SMALLEST = 24


def feduv_cnn(shape: tuple[int, int, int], *, dim: int = 256, norm: str = "batch") -> Extractor:
    """Eight unpadded convolutions, the mean of each of 64 channels, and a projector of `dim` neurons.

    The paper's appendix with the layers is not in its main text; these are those of the authors' published
    implementation, which normalises by batch throughout. The projector does so whatever `norm` is.

    Raises:
        ValueError: if the input is smaller than 24 px.
    """
    if min(shape[1:]) < _SMALLEST:
        raise ValueError(
            f"feduv_cnn needs images of {_SMALLEST} px or more, not {shape[1]}×{shape[2]}; take cnn"
        )
    channels = [shape[0], *(after for after, _, _ in _LAYERS)]
    blocks = [
        nn.Sequential(*convolution(before, after, kernel, stride=stride, padding=0, norm=norm))
        for before, (after, kernel, stride) in zip(channels, _LAYERS, strict=False)
    ]
    return Extractor(nn.Sequential(*blocks, *pooled(), *projector(channels[-1], dim)), dim)
