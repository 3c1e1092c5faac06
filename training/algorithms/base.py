"""What a federated algorithm is made of: terms at the members, an aggregation at the server.

Head, loss and feature normalisation are choices beside the algorithm, so SphereFed × FedNova is a recipe and
no class. A `Term` is one ingredient of the local objective together with what it sends and keeps; terms add
up. An `Aggregation` turns the members' weights into the next global ones. A method takes from both what it
needs:

=====================  ==============================================  ====================================
method                 terms                                           aggregation
=====================  ==============================================  ====================================
FedAvg                 none                                            mean by records
FedProx, clsprox       penalty ½μ‖θ − θ^t‖², over all or the head      any
MOON, FedMMD           penalty on z against the received and the       any
                       remembered model's features
FedUV                  penalty on logits and z                         any
FedRS                  logits of absent classes scaled                 any
GMV                    features z + αμ_y; sends class sums of z;       any
                       reduces them to μ
SCAFFOLD               penalty ⟨c − c_k, θ⟩, whose gradient is the     uniform mean
                       correction; remembers c_k; sends Δc_k
FedDyn                 penalty ½α‖θ − θ^t‖² − ⟨h_k, θ⟩; remembers h_k  uniform mean − h/α, h in its state
FedNova, FedOpt        none                                            by `Update.steps`; moments in its state
FedAwS                 none (a loss of positives only)                 any, then a step that spreads the head
=====================  ==============================================  ====================================

BABU, Freeze, ETF and clsnorm are heads. The personal layers of LG-FedAvg and FedRep are a term that remembers
them when it finishes and puts them back when it begins (FedRep then fits them to the site's records and
freezes them for the steps that follow). Everything that travels or is kept is a `State`, tensors by name, so
it can cross a process or a disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.data import Dataset
    from training.heads import Classifier

State: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class Round:
    """What everybody knows about a round: its index from 0, its learning rate, the federation's size."""

    index: int
    lr: float
    members: int


class Batch(NamedTuple):
    """One step's records with what the model made of them: x (n, ...), y (n,), z (n, l), logits (n, C)."""

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Site:
    """A member during its local training, as one term sees it.

    Attributes:
        model: the model in training; its tensors change with every step.
        records: the member's own.
        received: the global weights θ^t as they came, by name.
        broadcast: what this term's server half sent with them.
        memory: what this term kept at this member when it last took part; empty at first.
        label_counts: the member's records of each class, of shape (C,).
        round: the round.
    """

    model: Classifier
    records: Dataset
    received: State
    broadcast: State
    memory: State
    label_counts: Tensor
    round: Round


class Term:
    """One ingredient of local training; each method is neutral until a subclass overrides it.

    Subclasses hold hyper-parameters only (frozen dataclasses): all that changes is a `State`.
    """

    def start(self, model: Classifier) -> State:
        """The server half's first broadcast, from the initial model."""
        del model
        return {}

    def begin(self, site: Site) -> None:
        """Before the first step, with the received weights in the model: it may be changed in place."""

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
        loss: the mean of the local objective over those steps.
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

    def start(self, weights: State) -> State:
        """What the server keeps between rounds, from the initial weights."""

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """The next global weights and state, from the last ones and the participants' updates."""


@dataclass(frozen=True)
class Algorithm:
    """An aggregation, and the terms that members add to their loss."""

    aggregation: Aggregation
    terms: tuple[Term, ...] = ()
