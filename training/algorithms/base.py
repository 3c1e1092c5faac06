"""What a federated algorithm is made of: terms at the members, an aggregation at the server.

Head, loss and feature normalisation are choices beside the algorithm, so SphereFed × FedNova is a recipe and
no class. A `Term` is one ingredient of the local objective together with what it sends and keeps; terms add
up. An `Aggregation` turns the members' weights into the next global ones. A method takes from both what it
needs:

=====================  ==============================================  ====================================
method                 terms                                           aggregation
=====================  ==============================================  ====================================
FedAvg                 none                                            `FedAvg`, the mean by records
FedProx, clsprox       `Proximal`, over all or the head                any
MOON, FedMMD           `ModelContrastive`, `FeatureDiscrepancy`        any
FedUV                  `ClassVariance`, `Uniformity`                   any
FedRS                  `RestrictedSoftmax`                             any
GMV                    `GlobalMemory`, `PrintedMemory`                 any
SCAFFOLD               `ControlVariates`                               any that counts members as it does
FedDyn                 `DynamicPenalty`                                `DynamicCorrection`
FedNova                none                                            `FedNova`
FedOpt, FedAvgM        none                                            `ServerOptimiser` over any other
FedAwS                 none (a loss of positives only)                 `Spreading` over any other
LG-FedAvg, FedPer      `Personal` extractor, or head                   any
FedRep                 `Personal` head, `HeadFirst`                    any
=====================  ==============================================  ====================================

BABU, Freeze, ETF and clsnorm are heads (`training.heads`). Everything that travels or is kept is a `State`, tensors by name, so
it can cross a process or a disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.nn import Parameter

    from training.data import Dataset
    from training.heads import Classifier

State: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class Round:
    """What everybody knows about a round.

    Attributes:
        index: from 0.
        lr: η of the members' SGD.
        members: K of the whole federation, not of the participants alone.
        momentum: ρ of the members' SGD, which starts each round at rest.
        records: n of all K members; only what counts members by theirs looks at it.
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
    """One step's records with what the model made of them: x (n, ...), y (n,), z (n, l), logits (n, C).

    z is the extractor's own; where a term's `features` changed it, only the logits know. `rows`, (n,), are the records' places
    among the member's own; None where augmentation has changed them.
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
        received: the global weights θ^t as they came, by name.
        origin: the weights that the first step starts from: those received, but for layers that the member keeps for itself.
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
    round: Round
    once: dict[str, Tensor] = field(default_factory=dict)


class Term:
    """One ingredient of local training; each method is neutral until a subclass overrides it.

    Subclasses hold hyper-parameters only (frozen dataclasses): all that changes is a `State`.
    """

    def check(self, aggregation: Aggregation) -> None:
        """Refuse, with a ValueError, an aggregation beside which the term does not do what it says."""

    def start(self, model: Classifier) -> State:
        """The server half's first broadcast, from the initial model."""
        del model
        return {}

    def begin(self, site: Site) -> None:
        """Before the first step, with the received weights in the model: it may be changed in place."""

    def trains(self, name: str, epoch: int) -> bool:
        """Whether the weights of this name are trained in a local epoch, from 0."""
        del name, epoch
        return True

    def features(self, z: Tensor, y: Tensor, site: Site) -> Tensor:
        """The features, of shape (n, l), that the head sees in training."""
        del y, site
        return z

    def logits(self, logits: Tensor, y: Tensor, site: Site) -> Tensor:
        """The logits, of shape (n, C), that the loss sees."""
        del y, site
        return logits

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """What is added to the batch's loss: a scalar."""
        del batch, site
        return 0.0

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """After `steps` local steps: the message to the server half, and the member's new memory."""
        del steps
        return {}, site.memory

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        """The server half's next broadcast, from its last one and the participants' messages."""
        del messages, round_
        return broadcast


@dataclass(frozen=True)
class Update:
    """What a member hands back after its local training.

    Attributes:
        weights: its trained weights, by name.
        records: n_k.
        steps: the number of local steps taken.
        loss: the mean over those steps of the batches' loss, without penalties.
        messages: per term, what its server half shall have.
        memory: per term, what the member keeps for its next round.
    """

    weights: State
    records: int
    steps: int
    loss: float
    messages: tuple[State, ...] = ()
    memory: tuple[State, ...] = ()


class Aggregation(Protocol):
    """How the server makes the next global weights."""

    @property
    def uniform(self) -> bool:
        """Whether it counts members alike, p_k = 1/K, and not by their records, p_k = n_k/n."""

    def start(self, model: Classifier) -> State:
        """What the server keeps between rounds, from the initial model."""

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """The next global weights and state, from the last ones and the participants' updates."""


@dataclass(frozen=True)
class Algorithm:
    """An aggregation, and the terms that members add to their loss.

    Raises:
        ValueError: if a term cannot go with the aggregation.
    """

    aggregation: Aggregation
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        for term in self.terms:
            term.check(self.aggregation)

    def plus(self, *terms: Term) -> Algorithm:
        """The same with further terms."""
        return Algorithm(self.aggregation, (*self.terms, *terms))


def trained(model: Classifier) -> dict[str, Parameter]:
    """The model's parameters that training changes, by name: no fixed head, no buffers."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def zeros(model: Classifier) -> State:
    """Zeros shaped as the trained parameters."""
    return {name: torch.zeros_like(p, requires_grad=False) for name, p in trained(model).items()}
