"""SCAFFOLD (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms.base import Term, trained, zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Batch, Round, Site, State
    from training.heads import Classifier


@dataclass(frozen=True)
class ControlVariates(Term):
    """Each local step descends g_k(θ) − c_k + c (Karimireddy et al. 2020, Algorithm 1, option II).

    The correction c − c_k is the gradient of the linear penalty ⟨c − c_k, θ⟩. After K steps of size η
    the member sets c_k ← c_k − c + (θ^t − θ)/(Kη), the mean gradient along its way, and sends Δc_k; the
    server sets c ← c + 1/N · Σ Δc_k. The paper averages the weights uniformly (`FedAvg(uniform=True)`)
    and steps by plain SGD. With momentum ‖a‖₁ (`Round.gradient_mass`) takes the place of K: (θ^t − θ)/(η‖a‖₁)
    is the weighted mean of the gradients that were stepped along, where dividing by K would make c_k up to
    1/(1 − ρ) times too long. θ^t is where the member started, with layers of its own where it keeps some.
    """

    def start(self, model: Classifier) -> State:
        """The server's c = 0, shaped as the trained weights."""
        return zeros(model)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """⟨c − c_k, θ⟩."""
        del batch
        own = site.memory or zeros(site.model)
        return sum(((site.broadcast[n] - own[n]) * p).sum() for n, p in trained(site.model).items())

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """The message Δc_k, and the memory c_k."""
        weights = trained(site.model)
        own = site.memory or zeros(site.model)
        way = site.round.gradient_mass(steps) * site.round.lr
        change = {
            name: (site.origin[name] - p.detach()) / way - site.broadcast[name] for name, p in weights.items()
        }
        return change, {name: own[name] + change[name] for name in change}

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        """The next c = c + 1/N · Σ Δc_k, over all N members, not the participants alone."""
        return {
            name: c + sum((message[name] for message in messages), start=torch.zeros_like(c)) / round_.members
            for name, c in broadcast.items()
        }
