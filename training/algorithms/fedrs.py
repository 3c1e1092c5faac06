"""FedRS (Li and Zhan 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms.base import Term
from training.ranges import fraction

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms.base import Site


@dataclass(frozen=True)
class RestrictedSoftmax(Term):
    """The logits of classes that the member does not hold count α times (Li and Zhan 2021, eq. 6 and 7).

    Their vectors would otherwise only ever be pushed away from its records' features.

    Attributes:
        alpha: α in 0..1; 1 is no restriction.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        fraction(alpha=self.alpha)

    def logits(self, logits: Tensor, y: Tensor, site: Site) -> Tensor:
        """The logits, those of absent classes scaled."""
        del y
        return logits * torch.where(site.label_counts > 0, 1.0, self.alpha)
