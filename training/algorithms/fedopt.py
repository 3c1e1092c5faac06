"""A server that steps by an optimiser of its own: FedAvgM (Hsu et al. 2019), FedOpt (Reddi et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from training.algorithms.base import trained
from training.algorithms.fedavg import FedAvg
from training.ranges import below_one, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Aggregation, Round, State, Update
    from training.heads import Classifier


@dataclass(frozen=True)
class ServerOptimiser:
    """The change Δ that another aggregation would make is a step's direction (Reddi et al. 2021, Algorithm 2).

    ``sgd``: m ← β₁m + Δ, θ ← θ + ηm, which with η = 1 is FedAvgM (Hsu et al. 2019, §4.3). The adaptive rules have
    m ← β₁m + (1 − β₁)Δ and θ ← θ + ηm/(√v + τ), with v ← v + Δ² for ``adagrad``, β₂v + (1 − β₂)Δ² for ``adam``, and
    v − (1 − β₂)Δ²·sign(v − Δ²) for ``yogi``; no bias is corrected. m starts at 0, v at τ² (the paper's v₋₁ ≥ τ²).
    Buffers are taken as the inner aggregation made them: a step of momentum could make a variance negative.

    Attributes:
        rule: one of the four.
        lr: η > 0 of the server.
        momentum: β₁ in [0, 1).
        beta2: β₂ in [0, 1), for ``adam`` and ``yogi``.
        tau: τ > 0, how far from dividing by nothing the adaptive rules stay.
        inner: whose change is the direction.
    """

    rule: Literal["sgd", "adam", "yogi", "adagrad"] = "adam"
    lr: float = 0.1
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    inner: Aggregation = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        positive(lr=self.lr, tau=self.tau)
        below_one(momentum=self.momentum, beta2=self.beta2)

    @property
    def uniform(self) -> bool:
        """As the inner aggregation."""
        return self.inner.uniform

    def start(self, model: Classifier) -> State:
        """M and v for each trained weight, and the inner aggregation's own state."""
        state = {f"inner/{name}": value for name, value in self.inner.start(model).items()}
        for name, p in trained(model).items():
            state[f"m/{name}"] = torch.zeros(p.shape)
            if self.rule != "sgd":
                state[f"v/{name}"] = torch.full(p.shape, self.tau**2)
        return state

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """One step of the server."""
        within = {name.removeprefix("inner/"): s for name, s in state.items() if name.startswith("inner/")}
        proposed, within = self.inner.combine(weights, updates, within, round_)
        after = {f"inner/{name}": value for name, value in within.items()}
        for key, before in state.items():
            if not key.startswith("m/"):
                continue
            name = key.removeprefix("m/")
            change = proposed[name] - weights[name]
            share = 1.0 if self.rule == "sgd" else 1 - self.momentum
            m = after[key] = self.momentum * before + share * change
            if self.rule != "sgd":
                v = after[f"v/{name}"] = self._second(state[f"v/{name}"], change.square())
                m = m / (v.sqrt() + self.tau)
            proposed[name] = weights[name] + self.lr * m
        return proposed, after

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        if self.rule == "adagrad":
            return v + square
        if self.rule == "adam":
            return self.beta2 * v + (1 - self.beta2) * square
        return v - (1 - self.beta2) * square * (v - square).sign()
