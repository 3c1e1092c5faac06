"""FedUV's two terms (Son et al. 2024): a member's classifier and features behave as on even data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn import functional

from training.algorithms.base import Term
from training.ranges import not_negative

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms.base import Batch, Site

_TINY = 1e-12


def variance_loss(logits: Tensor) -> Tensor:
    """L_V = 1/C Σ_c max(0, 1/√C − std(P_c)) for logits of shape (n, C), P their softmax (Son et al. 2024, eq. 2 and 3).

    1/√C is the standard deviation, over n − 1, of a column of the identity: what a batch with one record of each class,
    all of them answered rightly, would have. A single record has no deviation and costs nothing.
    """
    records, classes = logits.shape
    if records < 2:
        return logits.new_zeros(())
    # Without the tiny addend, a column that is constant has an infinite slope.
    deviation = (logits.softmax(dim=1).var(dim=0) + _TINY).sqrt()
    missing: Tensor = classes**-0.5 - deviation
    return missing.clamp(min=0).mean()


def uniformity_loss(z: Tensor) -> Tensor:
    """L_U = E exp(−‖x − y‖²/(2σ)) over pairs of rows of z (n, l), σ the median of ‖x − y‖² (Son et al. 2024, eq. 4).

    σ is a constant of the batch: nothing flows back through it. A single record has no pairs and costs nothing.
    """
    if len(z) < 2:
        return z.new_zeros(())
    squares = functional.pdist(z.float()).square()  # differences of large squares would drown in bfloat16
    sigma = squares.detach().median().clamp(min=_TINY)
    return (-squares / (2 * sigma)).exp().mean()


@dataclass(frozen=True)
class ClassVariance(Term):
    """λ·L_V on the logits.

    Attributes:
        weight: λ ≥ 0; None for the paper's C/4.
    """

    weight: float | None = None

    def __post_init__(self) -> None:
        not_negative(weight=self.weight or 0.0)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """λ·L_V of the batch."""
        del site
        weight = batch.logits.shape[1] / 4 if self.weight is None else self.weight
        return weight * variance_loss(batch.logits)


@dataclass(frozen=True)
class Uniformity(Term):
    """μ·L_U on the features.

    Attributes:
        weight: μ ≥ 0.
    """

    weight: float = 0.5

    def __post_init__(self) -> None:
        not_negative(weight=self.weight)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """μ·L_U of the batch."""
        del site
        return self.weight * uniformity_loss(batch.z)
