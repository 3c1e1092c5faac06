"""FedProx (Li et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.algorithms.base import Term

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms.base import Batch, Site


@dataclass(frozen=True)
class Proximal(Term):
    """½μ‖θ − θ^t‖² over the trained weights (Li et al. 2020, eq. 2): with its ½ and its square.

    Attributes:
        mu: μ ≥ 0.
    """

    mu: float

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """½μ‖θ − θ^t‖², whatever the batch."""
        del batch
        trained = ((name, p) for name, p in site.model.named_parameters() if p.requires_grad)
        return 0.5 * self.mu * sum((p - site.received[name]).square().sum() for name, p in trained)
