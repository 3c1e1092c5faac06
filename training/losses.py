"""Losses of a batch: logits (n, C) and labels (n,) to a scalar, the mean over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """−log softmax(Wz)_y."""
    return functional.cross_entropy(logits, labels)


def mean_squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """SphereFed's 1/C · ‖Wz − onehot(y)‖² (Dong et al. 2022, eq. 5)."""
    targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return functional.mse_loss(logits, targets)


def positive_hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """FedAwS's max(0, 0.9 − w_yᵀz)², of cosines: the other classes' vectors don't appear (Yu et al. 2020, eq. 4)."""
    own = logits.gather(1, labels[:, None])
    return (0.9 - own).clamp(min=0).square().mean()


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "mean-squared-error": mean_squared_error,
    "positive-hinge": positive_hinge,
}
