"""Federated averaging (McMahan et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.algorithms.base import Round, State, Update
    from training.heads import Classifier


def weighted_mean(states: Sequence[State], weights: Sequence[float]) -> State:
    """Σ_k w_k s_k / Σ_k w_k for every tensor, summed in float64 in the order given.

    Integer tensors (batch normalisation's counters) are rounded to the nearest integer.
    """
    total = sum(weights)
    mean = {}
    for name, first in states[0].items():
        value = torch.zeros(first.shape, dtype=torch.float64)
        for state, weight in zip(states, weights, strict=True):
            value.add_(state[name].double(), alpha=weight / total)
        mean[name] = (value if first.is_floating_point() else value.round()).to(first.dtype)
    return mean


@dataclass(frozen=True)
class FedAvg:
    """θ ← Σ n_k θ_k / Σ n_k over the participants (McMahan et al. 2017, Algorithm 1).

    Attributes:
        uniform: weigh members alike instead of by their records n_k.
    """

    uniform: bool = False

    def start(self, model: Classifier) -> State:
        """No state: the mean has no memory."""
        del model
        return {}

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """The mean of the updates' weights."""
        del weights, round_
        shares = [1.0 if self.uniform else float(update.records) for update in updates]
        return weighted_mean([update.weights for update in updates], shares), state
