"""What a federated algorithm is made of: terms at the members, an aggregation at the server.

Head, loss and feature normalisation are choices beside the algorithm, so SphereFed × FedNova is a recipe, not a class.
A `Term` is one ingredient of the local objective together with what it sends and keeps; terms add up. An `Aggregation` turns the
members' weights into the next global ones.

=====================  ==============================================  ====================================
method                 terms                                           aggregation
=====================  ==============================================  ====================================
FedAvg                 none                                            `FedAvg`, the mean by records
FedProx, clsprox       `Proximal`, over all or the head                any
MOON, FedMMD           `ModelContrastive`, `FeatureDiscrepancy`        any
FedUV                  `ClassVariance`, `Uniformity`                   any
FedRS                  `RestrictedSoftmax`                             any
GMV                    `GlobalMemory`, `PrintedMemory`                 any
SCAFFOLD               `ControlVariates`                               any that weighs members as it does
FedDyn                 `DynamicPenalty`                                `DynamicCorrection`
FedNova                none                                            `FedNova`
FedOpt, FedAvgM        none                                            `ServerOptimiser` over any other
FedAwS                 none (a loss of positives only)                 `Spreading` over any other
LG-FedAvg, FedPer      `PersonalLayers` extractor, or head             any
FedRep                 `PersonalLayers` head, `HeadFirst`              any
=====================  ==============================================  ====================================

BABU, Freeze, ETF and clsnorm are heads (`training.heads`). All that is sent or kept is a `State`, tensors by name, so
it can cross processes and be saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter

from training.data.dataset import Dataset
from training.heads import Classifier

State: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class TrainingRound:
    """What all parties know about a round.

    Attributes:
        index: from 0.
        lr: η of the members' SGD.
        members: K of the whole federation, not of the participants only.
        momentum: ρ of the members' SGD, which starts each round at rest.
        records: n of all K members.
    """

    index: int
    lr: float
    members: int
    momentum: float = 0.0
    records: int = 0

    def gradient_mass(self, steps: int) -> float:
        """‖a‖₁ of `steps` local steps: θ^t − θ = η Σ a_s g_s for SGD with momentum (Wang et al. 2020, §4.2).

        a_s = (1 − ρ^(τ−s))/(1 − ρ) for the s-th gradient of τ, from 0, so the sum is (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ),
        which is τ without momentum.
        """
        rho = self.momentum
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


class Batch(NamedTuple):
    """One step's records and their features and logits: x (n, ...), y (n,), z (n, l), logits (n, C).

    z is the extractor's output, before any term's `features`. `rows`, (n,), are the records' indices among the member's own, or
    None if augmentation changed them.
    """

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor
    rows: Tensor | None = None


@dataclass(frozen=True)
class Site:
    """A member during its local training, as one term sees it.

    Attributes:
        model: the model in training; its tensors change with every step.
        records: the member's own.
        received: the global weights θ^t, by name.
        origin: the weights before the first step: those received, except layers that the member keeps for itself.
        broadcast: what this term's server half sent with them.
        memory: what this term kept at this member when it last took part; empty at first.
        label_counts: the member's records of each class, of shape (C,).
        round: the round.
        once: what a term computed of all records in this round, under names of its own.
    """

    model: Classifier
    records: Dataset
    received: State
    origin: State
    broadcast: State
    memory: State
    label_counts: Tensor
    round: TrainingRound
    once: dict[str, Tensor] = field(default_factory=dict)


class Term:
    """One ingredient of local training; each method is neutral until a subclass overrides it.

    Subclasses are frozen dataclasses of hyper-parameters: all that changes is a `State`.
    """

    def check(self, aggregation: Aggregation) -> None:
        """Raise ValueError if the term does not work with this aggregation."""

    def start(self, model: Classifier) -> State:
        """Return the server half's first broadcast, from the initial model."""
        return {}

    def begin(self, site: Site) -> None:
        """Change the model in place before the first step; it holds the received weights."""

    def trains(self, name: str, epoch: int) -> bool:
        """Return whether the weights of this name are trained in a local epoch, from 0."""
        return True

    def keeps(self, name: str) -> bool:
        """Return whether the member keeps the weights of this name for itself; no term's `quadratic` is asked about them."""
        return False

    def features(self, z: Tensor, y: Tensor, site: Site) -> Tensor:
        """Return the features, of shape (n, l), that the head sees in training."""
        return z

    def logits(self, logits: Tensor, y: Tensor, site: Site) -> Tensor:
        """Return the logits, of shape (n, C), that the loss sees."""
        return logits

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """Return a scalar to add to the batch's loss."""
        return 0.0

    def quadratic(self, name: str, site: Site) -> tuple[float, Tensor | float]:
        """Return κ and s of the penalty ½κ‖θ − θ^t‖² + ⟨s, θ⟩ on the weights of this name, fixed during the round.

        Its gradient κ(θ − θ^t) + s needs no autograd. θ^t is `site.origin`.
        """
        return 0.0, 0.0

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return the message to the server half and the member's new memory, after `steps` local steps."""
        return {}, site.memory

    def reduce(self, broadcast: State, messages: Sequence[State], round_: TrainingRound) -> State:
        """Return the server half's next broadcast, from its last one and the participants' messages."""
        return broadcast


@dataclass(frozen=True)
class Update:
    """What a member returns after its local training.

    Attributes:
        weights: its trained weights, by name.
        records: n_k.
        steps: local steps taken.
        loss: the mean over those steps of the batches' loss, without penalties.
        messages: per term, for its server half.
        memory: per term, what the member keeps for its next round.
    """

    weights: State
    records: int
    steps: int
    loss: float
    messages: tuple[State, ...] = ()
    memory: tuple[State, ...] = ()


class Aggregation:
    """How the server makes the next global weights. Subclasses are frozen dataclasses, as of `Term`."""

    @property
    def uniform(self) -> bool:
        """Whether members weigh equally, p_k = 1/K, instead of by their records, p_k = n_k/n."""
        return False

    def start(self, model: Classifier) -> State:
        """Return what the server keeps between rounds, from the initial model."""
        return {}

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        """Return the next global weights and state, from the last ones and the participants' updates."""
        raise NotImplementedError


@dataclass(frozen=True)
class Algorithm:
    """An aggregation, and the terms that members add to their loss.

    Raises:
        ValueError: if a term does not work with the aggregation.
    """

    aggregation: Aggregation
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        for term in self.terms:
            term.check(self.aggregation)

    def plus(self, *terms: Term) -> Algorithm:
        """Return the algorithm with further terms."""
        return Algorithm(self.aggregation, (*self.terms, *terms))

    def keeps(self, name: str) -> bool:
        """Return whether members keep the weights of this name for themselves."""
        return any(term.keeps(name) for term in self.terms)

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        """Return the next global weights and the aggregation's state. Of layers that members keep the global model holds the plain mean."""
        proposed, state = self.aggregation.combine(weights, updates, state, round_)
        shares = [1.0 if self.aggregation.uniform else float(update.records) for update in updates]
        own = [{name: each.weights[name] for name in proposed if self.keeps(name)} for each in updates]
        return proposed | weighted_mean(own, shares), state


def trained_parameters(model: Classifier) -> dict[str, Parameter]:
    """Return the parameters that training changes, by name: no fixed head, no buffers."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def zero_state(model: Classifier) -> State:
    """Return zeros shaped as the trained parameters."""
    return {name: torch.zeros_like(p, requires_grad=False) for name, p in trained_parameters(model).items()}


def weighted_mean(states: Sequence[State], weights: Sequence[float]) -> State:
    """Return Σ_k w_k s_k / Σ_k w_k of every tensor, summed in float64 in the given order.

    Integer tensors (batch normalisation's counters) are rounded to the nearest integer.
    """
    total = sum(weights)
    mean = {}
    for name, first in states[0].items():
        value = torch.zeros(first.shape, dtype=torch.float64, device=first.device)
        for state, weight in zip(states, weights, strict=True):
            value.add_(state[name], alpha=weight / total)
        mean[name] = (value if first.is_floating_point() else value.round()).to(first.dtype)
    return mean
