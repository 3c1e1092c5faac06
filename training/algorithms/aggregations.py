"""What the server makes of the members' weights: FedAvg, FedNova, FedOpt, FedAwS. FedDyn's is in `weights`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from training.algorithms.base import (
    Aggregation,
    State,
    TrainingRound,
    Update,
    trained_parameters,
    weighted_mean,
)
from training.heads import Classifier
from training.ranges import below_one, check_positive, not_negative

HEAD_WEIGHT = "head.weight"


@dataclass(frozen=True)
class FedAvg(Aggregation):
    """θ ← Σ n_k θ_k / Σ n_k over the participants (McMahan et al. 2017, Algorithm 1).

    Attributes:
        uniform: weigh members equally instead of by their records n_k.
    """

    uniform: bool = False

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        shares = [1.0 if self.uniform else float(update.records) for update in updates]
        return weighted_mean([update.weights for update in updates], shares), state


@dataclass(frozen=True)
class FedNova(Aggregation):
    """θ ← θ^t − τ_eff Σ p_k (θ^t − θ_k)/‖a_k‖₁ (Wang et al. 2020, eq. 8 and 11), p_k = n_k / Σ n_k.

    In FedAvg, members that take more local steps pull the mean towards their own optimum. Here only the direction of a
    member's change counts. ‖a_k‖₁ includes momentum: τ_k steps with ρ = 0.9 go up to ten times as far as without it, but not in
    proportion to τ_k. τ_eff = Σ p_k ‖a_k‖₁, so with equal steps this is FedAvg. Buffers are averaged by records.
    """

    def start(self, model: Classifier) -> State:
        """Return the names of the weights that steps change; there is no other state."""
        return {name: torch.zeros(()) for name in trained_parameters(model)}

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
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


@dataclass(frozen=True)
class ServerOptimiser(Aggregation):
    """FedAvgM and FedOpt: the server steps along the change Δ that another aggregation would make (Reddi et al. 2021, Algorithm 2).

    ``sgd``: m ← β₁m + Δ, θ ← θ + ηm, which with η = 1 is FedAvgM (Hsu et al. 2019, §4.3). The adaptive rules have
    m ← β₁m + (1 − β₁)Δ and θ ← θ + ηm/(√v + τ), with v ← v + Δ² for ``adagrad``, β₂v + (1 − β₂)Δ² for ``adam``, and
    v − (1 − β₂)Δ²·sign(v − Δ²) for ``yogi``, without bias correction. m starts at 0, v at τ² (the paper's v₋₁ ≥ τ²).
    Buffers are the inner aggregation's: a step with momentum could make a variance negative.

    Attributes:
        rule: the server's optimiser.
        lr: η > 0 of the server.
        momentum: β₁ in [0, 1).
        beta2: β₂ in [0, 1), for ``adam`` and ``yogi``.
        tau: τ > 0, which keeps the adaptive rules from dividing by zero.
        inner: the aggregation; its change is the direction.
    """

    rule: Literal["sgd", "adam", "yogi", "adagrad"] = "adam"
    lr: float = 0.1
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    inner: Aggregation = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, tau=self.tau)
        below_one(momentum=self.momentum, beta2=self.beta2)

    @property
    def uniform(self) -> bool:
        return self.inner.uniform

    def start(self, model: Classifier) -> State:
        """Return m and v for each trained weight, and the inner aggregation's state."""
        state = {f"inner/{name}": value for name, value in self.inner.start(model).items()}
        for name, p in trained_parameters(model).items():
            state[f"m/{name}"] = torch.zeros(p.shape)
            if self.rule != "sgd":
                state[f"v/{name}"] = torch.full(p.shape, self.tau**2)
        return state

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
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
                v = after[f"v/{name}"] = self._second_moment(state[f"v/{name}"], change.square())
                m = m / (v.sqrt() + self.tau)
            proposed[name] = weights[name] + self.lr * m
        return proposed, after

    def _second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        if self.rule == "adagrad":
            return v + square
        if self.rule == "adam":
            return self.beta2 * v + (1 - self.beta2) * square
        return v - (1 - self.beta2) * square * (v - square).sign()


def spread_out(weight: Tensor, margin: float) -> Tensor:
    """Σ_c Σ_{c' ≠ c} max(0, ν − ‖w_c − w_c'‖)² for W of shape (C, l), rows scaled to length 1 (Yu et al. 2020, eq. 7)."""
    unit = torch.nn.functional.normalize(weight, dim=1)
    # pdist has each pair once, and a finite gradient at distance zero.
    return 2 * (margin - torch.pdist(unit)).clamp(min=0).square().sum()


@dataclass(frozen=True)
class Spreading(Aggregation):
    """FedAwS's server: after another aggregation, gradient steps W ← W − η∇spread_out(W) on the head (Yu et al. 2020).

    There members train on positives only (`positive_hinge`) and the server takes one step. As a baseline for members with several
    classes, Li and Zhan 2021 train them by cross-entropy and take 30 to 50 steps.

    Attributes:
        margin: ν ≥ 0, the distance beyond which two classes do not repel each other; √2 is that of orthogonal ones.
        lr: η ≥ 0 of a step.
        steps: ≥ 1.
        inner: the aggregation before it.
    """

    margin: float = 2**0.5
    lr: float = 0.1
    steps: int = 1
    inner: Aggregation = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        not_negative(margin=self.margin, lr=self.lr)
        check_positive(steps=self.steps)

    @property
    def uniform(self) -> bool:
        return self.inner.uniform

    def start(self, model: Classifier) -> State:
        """Return the inner aggregation's state. Raises ValueError if the head is fixed."""
        if not model.head.weight.requires_grad:
            raise ValueError("FedAwS needs a trained head: a fixed one does not change")
        return self.inner.start(model)

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        proposed, state = self.inner.combine(weights, updates, state, round_)
        head = proposed[HEAD_WEIGHT]
        for _ in range(self.steps):
            head = head.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(spread_out(head, self.margin), head)
            head = head.detach() - self.lr * gradient
        return proposed | {HEAD_WEIGHT: head}, state
