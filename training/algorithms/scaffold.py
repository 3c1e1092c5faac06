"""SCAFFOLD (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms.base import Term, trained, zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Aggregation, Batch, Round, Site, State
    from training.heads import Classifier


@dataclass(frozen=True)
class ControlVariates(Term):
    """Each local step descends g_k(θ) − c_k + c (Karimireddy et al. 2020, Algorithm 1, option II).

    The correction c − c_k is the gradient of the linear penalty ⟨c − c_k, θ⟩. After K steps of size η
    the member sets c_k ← c_k − c + (θ^t − θ)/(Kη), the mean gradient along its way, and sends N·p_k·Δc_k; the
    server sets c ← c + 1/N · Σ N·p_k·Δc_k over the participants, so that c = Σ p_k c_k over all N members. p_k are the
    aggregation's: 1/N in the paper, whose server averages alike (`FedAvg(uniform=True)`), or n_k/n. Under others than the
    aggregation's, c would draw the run from the optimum of the aggregation's objective Σ p_k F_k to another's.
    The paper steps by plain SGD. With momentum ‖a‖₁ (`Round.gradient_mass`) takes the place of K: (θ^t − θ)/(η‖a‖₁)
    is the weighted mean of the gradients that were stepped along, where dividing by K would make c_k up to
    1/(1 − ρ) times too long. θ^t is where the member started, with layers of its own where it keeps some.

    Attributes:
        uniform: p_k = 1/N, instead of n_k/n of all N members' records; the same as the aggregation's.
    """

    uniform: bool = True

    def check(self, aggregation: Aggregation) -> None:
        """Hold p_k against the aggregation's."""
        if self.uniform != aggregation.uniform:
            told = ["by their records", "alike"]
            raise ValueError(
                f"SCAFFOLD's control variates count members {told[self.uniform]} and the aggregation {told[aggregation.uniform]}: "
                f"together they have no objective in common; give scaffold uniform = {str(aggregation.uniform).lower()}"
            )

    def start(self, model: Classifier) -> State:
        """The server's c = 0, shaped as the trained weights."""
        return zeros(model)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """⟨c − c_k, θ⟩."""
        del batch
        own = site.memory or zeros(site.model)
        return sum(((site.broadcast[n] - own[n]) * p).sum() for n, p in trained(site.model).items())

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """The message N·p_k·Δc_k, and the memory c_k."""
        weights = trained(site.model)
        own = site.memory or zeros(site.model)
        way = site.round.gradient_mass(steps) * site.round.lr
        change = {
            name: (site.origin[name] - p.detach()) / way - site.broadcast[name] for name, p in weights.items()
        }
        memory = {name: own[name] + change[name] for name in change}
        if self.uniform:
            return change, memory
        weight = site.round.members * len(site.records) / site.round.records
        return {name: weight * change[name] for name in change}, memory

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        """The next c = c + 1/N · Σ N·p_k·Δc_k, over all N members, not the participants alone."""
        return {
            name: c + sum((message[name] for message in messages), start=torch.zeros_like(c)) / round_.members
            for name, c in broadcast.items()
        }
