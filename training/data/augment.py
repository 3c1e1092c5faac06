"""Augmentation as tensor operations, from torch's generator: the same seed gives the same pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def crop_and_flip(x: Tensor, *, padding: int = 4) -> Tensor:
    """Each image shifted by up to `padding` pixels either way, black moving in, and mirrored with probability ½.

    Args:
        x: (n, channels, height, width), of any type; it is left as it was.
        padding: 4 is what the papers take at 32 px.
    """
    n, _, height, width = x.shape
    padded = functional.pad(x, (padding, padding, padding, padding))
    top, left = torch.randint(2 * padding + 1, (2, n, 1), device=x.device)
    mirrored = torch.rand(n, 1, device=x.device) < 0.5
    rows = top + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device).expand(n, width)
    columns = left + torch.where(mirrored, columns.flip(1), columns)
    record = torch.arange(n, device=x.device)[:, None, None]
    # Indexed together, record, row and column come first: (n, height, width, channels).
    return padded[record, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
