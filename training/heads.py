"""Classifier heads, and the classifier that puts one on a feature extractor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from training.models import Extractor


class LearnedHead(nn.Linear):
    """The usual linear head, trained and averaged with the rest: logits Wz + b, with W of shape (C, l)."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__(dim, classes)


class FixedHead(nn.Linear):
    """A linear head that training leaves as it is, so that no round has to send it.

    Args:
        weight: W of shape (C, l), one row a class.
        bias: b of shape (C,), or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        classes, dim = weight.shape
        super().__init__(dim, classes, bias=bias is not None)
        self.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        self.requires_grad_(requires_grad=False)


def orthonormal_head(dim: int, classes: int) -> FixedHead:
    """SphereFed's head: C orthonormal rows of length l from a QR decomposition (Dong et al. 2022, eq. 4).

    Q of a Gaussian matrix, with the signs of R's diagonal moved into Q, is uniform over the orthonormal
    frames. Drawn from torch's generator, so whoever knows the seed has the head.

    Raises:
        ValueError: if l < C, for then C orthonormal rows do not exist.
    """
    if dim < classes:
        raise ValueError(
            f"{classes} classes need {classes} orthonormal rows, which features of dimension {dim} don't have; "
            f"choose an extractor with dim >= {classes}"
        )
    q, r = torch.linalg.qr(torch.randn(dim, classes, dtype=torch.float64))
    return FixedHead((q * r.diagonal().sign()).T.float())


class Classifier(nn.Module):
    """A head on an extractor.

    Args:
        extractor: maps x of shape (n, ...) to features of shape (n, l).
        head: maps features to logits of shape (n, C).
        normalise: whether features are scaled to ‖z‖ = 1 first (Dong et al. 2022, §4.1).
    """

    def __init__(self, extractor: Extractor, head: nn.Linear, *, normalise: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head
        self.normalise = normalise

    def features(self, x: Tensor) -> Tensor:
        """What the head sees: z of shape (n, l), of norm one where `normalise` is set."""
        z: Tensor = self.extractor(x)
        return functional.normalize(z, dim=1) if self.normalise else z

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, C)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def shared_weights(self) -> dict[str, Tensor]:
        """The tensors that a round sends: all that training changes, buffers included, and no fixed head.

        They are the model's own tensors, not copies.
        """
        trained = {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}
        return trained | dict(self.named_buffers())
