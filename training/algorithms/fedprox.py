"""FedProx (Li et al. 2020) and clsprox (Luo et al. 2021, §3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from training.algorithms.base import Term, trained
from training.ranges import not_negative

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms.base import Batch, Site


@dataclass(frozen=True)
class Proximal(Term):
    """½μ‖θ − θ^t‖² over the trained weights (Li et al. 2020, eq. 2): with its ½ and its square.

    Layers that the member keeps for itself are held to where they start.

    Attributes:
        mu: μ ≥ 0.
        over: all weights, or the head's alone, which is clsprox.
    """

    mu: float
    over: Literal["all", "head"] = "all"

    def __post_init__(self) -> None:
        not_negative(mu=self.mu)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """½μ‖θ − θ^t‖², whatever the batch."""
        del batch
        prefix = "" if self.over == "all" else "head."
        held = ((name, p) for name, p in trained(site.model).items() if name.startswith(prefix))
        return 0.5 * self.mu * sum((p - site.origin[name]).square().sum() for name, p in held)
