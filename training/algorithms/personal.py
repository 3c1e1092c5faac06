"""Layers that stay with a member: LG-FedAvg (Liang et al. 2020), FedPer (Arivazhagan et al. 2019), FedRep (Collins et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from training.algorithms.base import Term

if TYPE_CHECKING:
    from training.algorithms.base import Site, State


@dataclass(frozen=True)
class Personal(Term):
    """A member goes on from its own head, or its own extractor, and not from the received one.

    The global model still has the mean of them, for members that take part for the first time and for the history; whoever
    evaluates members uses `training.personal`.

    Attributes:
        layers: ``extractor`` is LG-FedAvg; ``head`` is FedPer and, with `HeadFirst`, FedRep.
    """

    layers: Literal["extractor", "head"]

    def begin(self, site: Site) -> None:
        """The member's own layers take the place of the received ones."""
        site.model.load_state_dict(site.memory, strict=False)

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """No message; the memory is these layers as they are now."""
        del steps
        own = site.model.shared_weights().items()
        return {}, {name: tensor.clone() for name, tensor in own if name.startswith(f"{self.layers}.")}


@dataclass(frozen=True)
class HeadFirst(Term):
    """The first local epochs train the head alone, the rest the extractor alone (Collins et al. 2021, Algorithm 1).

    Attributes:
        head_epochs: how many of the local epochs are the head's.
    """

    head_epochs: int

    def trains(self, name: str, epoch: int) -> bool:
        """The head while its epochs last, then the extractor."""
        return name.startswith("head.") == (epoch < self.head_epochs)
