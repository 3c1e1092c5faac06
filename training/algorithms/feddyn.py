"""FedDyn (Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.algorithms.base import Term, trained, zeros
from training.algorithms.fedavg import weighted_mean
from training.ranges import positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Batch, Round, Site, State, Update
    from training.heads import Classifier


@dataclass(frozen=True)
class DynamicPenalty(Term):
    """½α‖θ − θ^t‖² − ⟨h_k, θ⟩ at a member (Acar et al. 2021, eq. 1 and Algorithm 1).

    h_k ← h_k − α(θ_k − θ^t) afterwards: at a stationary point of the local objective it is the gradient of the member's
    own loss there, so that a point where all members agree is one where the federation's loss is stationary. θ^t is where
    the member started, with layers of its own where it keeps some.

    Attributes:
        alpha: α > 0, the same as the server's.
    """

    alpha: float

    def __post_init__(self) -> None:
        positive(alpha=self.alpha)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """½α‖θ − θ^t‖² − ⟨h_k, θ⟩."""
        del batch
        own = site.memory or zeros(site.model)
        return sum(
            0.5 * self.alpha * (p - site.origin[name]).square().sum() - (own[name] * p).sum()
            for name, p in trained(site.model).items()
        )

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """No message; the memory h_k."""
        del steps
        own = site.memory or zeros(site.model)
        weights = trained(site.model)
        return {}, {
            name: own[name] - self.alpha * (p.detach() - site.origin[name]) for name, p in weights.items()
        }


@dataclass(frozen=True)
class DynamicCorrection:
    """h ← h − α/K · Σ (θ_k − θ^t) over the participants, θ ← mean θ_k − h/α (Acar et al. 2021, Algorithm 1).

    K counts all members, for those that are absent keep the h_k that they had.

    Attributes:
        alpha: α > 0, the same as the members'.
    """

    alpha: float

    def __post_init__(self) -> None:
        positive(alpha=self.alpha)

    @property
    def uniform(self) -> bool:
        """Yes: mean and h both count members alike, whatever their records."""
        return True

    def start(self, model: Classifier) -> State:
        """The server's h = 0."""
        return zeros(model)

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """The uniform mean, less h/α. Buffers are averaged alone."""
        mean = weighted_mean([update.weights for update in updates], [1.0] * len(updates))
        share = self.alpha * len(updates) / round_.members
        after = {name: h - share * (mean[name] - weights[name]) for name, h in state.items()}
        for name, h in after.items():
            mean[name] = mean[name] - h / self.alpha
        return mean, after
