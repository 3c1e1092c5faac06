"""Terms on the weights: FedProx, SCAFFOLD, FedDyn with its server, and layers that stay with a member."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from training.algorithms.base import (
    Aggregation,
    Site,
    State,
    Term,
    TrainingRound,
    Update,
    trained_parameters,
    weighted_mean,
    zero_state,
)
from training.heads import Classifier
from training.ranges import check_positive, not_negative


@dataclass(frozen=True)
class Proximal(Term):
    """FedProx: ½μ‖θ − θ^t‖² over the trained weights (Li et al. 2020, eq. 2).

    Attributes:
        mu: μ ≥ 0.
        over: all weights, or the head's only, which is clsprox (Luo et al. 2021, §3.3).
    """

    mu: float
    over: Literal["all", "head"] = "all"

    def __post_init__(self) -> None:
        not_negative(mu=self.mu)

    def quadratic(self, name: str, site: Site) -> tuple[float, Tensor | float]:
        return self.mu if self.over == "all" or name.startswith("head.") else 0.0, 0.0


@dataclass(frozen=True)
class ControlVariates(Term):
    """SCAFFOLD: each local step descends g_k(θ) − c_k + c (Karimireddy et al. 2020, Algorithm 1, option II).

    The correction c − c_k is the gradient of the linear penalty ⟨c − c_k, θ⟩. After K steps of size η
    the member sets c_k ← c_k − c + (θ^t − θ)/(Kη), the mean gradient along its way, and sends N·p_k·Δc_k. The
    server sets c ← c + 1/N · Σ N·p_k·Δc_k over the participants, so that c = Σ p_k c_k over all N members.

    p_k must be the aggregation's: 1/N in the paper, whose server averages equally (`FedAvg(uniform=True)`), or n_k/n. Otherwise c
    would pull the run from the optimum of the aggregation's objective Σ p_k F_k to another one.

    The paper steps by plain SGD. With momentum ‖a‖₁ (`TrainingRound.gradient_mass`) replaces K: (θ^t − θ)/(η‖a‖₁)
    is the weighted mean of the gradients along the way; dividing by K would make c_k up to 1/(1 − ρ) times too long.

    Attributes:
        uniform: p_k = 1/N instead of n_k/n; the same as the aggregation's.
    """

    uniform: bool = True

    def check(self, aggregation: Aggregation) -> None:
        if self.uniform != aggregation.uniform:
            told = ["by their records", "alike"]
            raise ValueError(
                f"SCAFFOLD's control variates count members {told[self.uniform]} and the aggregation {told[aggregation.uniform]}: "
                f"together they have no objective in common; give scaffold uniform = {str(aggregation.uniform).lower()}"
            )

    def start(self, model: Classifier) -> State:
        return zero_state(model)

    def quadratic(self, name: str, site: Site) -> tuple[float, Tensor | float]:
        return 0.0, site.broadcast[name] - site.memory.get(name, 0.0)

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return the message N·p_k·Δc_k and the memory c_k."""
        weights = trained_parameters(site.model)
        own = site.memory or zero_state(site.model)
        way = site.round.gradient_mass(steps) * site.round.lr
        change = {
            name: (site.origin[name] - p.detach()) / way - site.broadcast[name] for name, p in weights.items()
        }
        memory = {name: own[name] + change[name] for name in change}
        if self.uniform:
            return change, memory
        weight = site.round.members * len(site.records) / site.round.records
        return {name: weight * change[name] for name in change}, memory

    def reduce(self, broadcast: State, messages: Sequence[State], round_: TrainingRound) -> State:
        """Return the next c; the divisor N counts all members, not the participants only."""
        return {
            name: c + sum((message[name] for message in messages), start=torch.zeros_like(c)) / round_.members
            for name, c in broadcast.items()
        }


@dataclass(frozen=True)
class DynamicPenalty(Term):
    """FedDyn at a member: ½α‖θ − θ^t‖² − ⟨h_k, θ⟩ (Acar et al. 2021, eq. 1 and Algorithm 1).

    Afterwards h_k ← h_k − α(θ_k − θ^t). At a stationary point of the local objective h_k is the gradient of the member's
    own loss, so a point where all members agree is one where the federation's loss is stationary. α > 0 is the same as the server's.
    """

    alpha: float

    def __post_init__(self) -> None:
        check_positive(alpha=self.alpha)

    def quadratic(self, name: str, site: Site) -> tuple[float, Tensor | float]:
        return self.alpha, -site.memory[name] if site.memory else 0.0

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return no message, and h_k as memory."""
        own = site.memory or zero_state(site.model)
        weights = trained_parameters(site.model)
        return {}, {
            name: own[name] - self.alpha * (p.detach() - site.origin[name]) for name, p in weights.items()
        }


@dataclass(frozen=True)
class DynamicCorrection(Aggregation):
    """FedDyn's server: h ← h − α/K · Σ (θ_k − θ^t) over the participants, θ ← mean θ_k − h/α (Acar et al. 2021, Algorithm 1).

    K counts all members, because absent ones keep their h_k. Mean and h weigh members equally. Buffers are averaged.
    α > 0 is the same as the members'.
    """

    alpha: float

    def __post_init__(self) -> None:
        check_positive(alpha=self.alpha)

    @property
    def uniform(self) -> bool:
        return True

    def start(self, model: Classifier) -> State:
        return zero_state(model)

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        mean = weighted_mean([update.weights for update in updates], [1.0] * len(updates))
        share = self.alpha * len(updates) / round_.members
        after = {name: h - share * (mean[name] - weights[name]) for name, h in state.items()}
        for name, h in after.items():
            mean[name] = mean[name] - h / self.alpha
        return mean, after


@dataclass(frozen=True)
class PersonalLayers(Term):
    """A member continues from its own head or extractor instead of the received one.

    Other terms' penalties leave these layers alone: SCAFFOLD would pull members' to one optimum, FedDyn hold them where they began.
    The global model still holds their mean, for members that take part for the first time and for the history.
    `training.personal` evaluates members.

    Attributes:
        layers: ``extractor`` is LG-FedAvg (Liang et al. 2020); ``head`` is FedPer (Arivazhagan et al. 2019) and, with `HeadFirst`,
            FedRep (Collins et al. 2021).
    """

    layers: Literal["extractor", "head"]

    def begin(self, site: Site) -> None:
        site.model.load_state_dict(site.memory, strict=False)

    def keeps(self, name: str) -> bool:
        return name.startswith(f"{self.layers}.")

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return no message, and the trained layers as memory."""
        own = site.model.shared_weights().items()
        return {}, {name: tensor.clone() for name, tensor in own if self.keeps(name)}


@dataclass(frozen=True)
class HeadFirst(Term):
    """The first `head_epochs` local epochs train the head only, the others the extractor only (Collins et al. 2021, Algorithm 1)."""

    head_epochs: int

    def trains(self, name: str, epoch: int) -> bool:
        return name.startswith("head.") == (epoch < self.head_epochs)
