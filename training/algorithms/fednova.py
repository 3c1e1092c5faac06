"""FedNova (Wang et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms.base import trained
from training.algorithms.fedavg import weighted_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.algorithms.base import Round, State, Update
    from training.heads import Classifier


@dataclass(frozen=True)
class FedNova:
    """θ ← θ^t − τ_eff Σ p_k (θ^t − θ_k)/‖a_k‖₁ (Wang et al. 2020, eq. 8 and 11), p_k = n_k / Σ n_k.

    Members that took more local steps would pull the mean towards their own optimum; here each counts by the direction
    in which it went. ‖a_k‖₁ holds momentum's part: τ_k steps with ρ = 0.9 go up to ten times as far as without, yet not
    in proportion to τ_k. τ_eff = Σ p_k ‖a_k‖₁, so with equal steps this is FedAvg. Buffers are averaged by records.
    """

    @property
    def uniform(self) -> bool:
        """No: p_k = n_k / Σ n_k."""
        return False

    def start(self, model: Classifier) -> State:
        """The names of the weights that are steps' work; the rule itself has no memory."""
        return {name: torch.zeros(()) for name in trained(model)}

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """The normalised average."""
        mean = weighted_mean([update.weights for update in updates], [update.records for update in updates])
        records = sum(update.records for update in updates)
        masses = [round_.gradient_mass(update.steps) for update in updates]
        effective = sum(u.records / records * mass for u, mass in zip(updates, masses, strict=True))
        for name in state:
            before = weights[name].double()
            change = torch.zeros_like(before)
            for update, mass in zip(updates, masses, strict=True):
                change += update.records / records / mass * (update.weights[name] - before)
            mean[name] = (before + effective * change).to(weights[name].dtype)
        return mean, state
