"""Augmentation as tensor operations, from torch's generator: the same seed gives the same pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def crop_and_flip(x: Tensor, *, padding: int = 4) -> Tensor:
    """Each image shifted by up to `padding` pixels either way, black moving in, and mirrored with probability ½.

    The processor's generator draws, wherever x lies: a GPU's would give other pictures.

    Args:
        x: (n, channels, height, width), of any type; it is left as it was.
        padding: 4 is what the papers take at 32 px.
    """
    n, channels, height, width = x.shape
    padded = functional.pad(x, (padding, padding, padding, padding)).permute(0, 2, 3, 1)
    top, left = torch.randint(2 * padding + 1, (2, n, 1))
    mirrored = torch.rand(n, 1) < 0.5
    # Of all images, one below the other.
    rows = top + torch.arange(height) + torch.arange(n)[:, None] * padded.shape[1]
    columns = torch.arange(width).expand(n, width)
    columns = left + torch.where(mirrored, columns.flip(1), columns)
    pixels = (rows[:, :, None] * padded.shape[2] + columns[:, None, :]).flatten().to(x.device)
    moved = padded.reshape(-1, channels).index_select(0, pixels)
    return moved.view(n, height, width, channels).permute(0, 3, 1, 2)
