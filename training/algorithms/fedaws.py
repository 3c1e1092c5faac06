"""FedAwS (Yu et al. 2020): members see positives alone, and the server keeps class vectors apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from training.algorithms.fedavg import FedAvg
from training.ranges import not_negative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Aggregation, Round, State, Update
    from training.heads import Classifier

HEAD = "head.weight"


def spread_out(weight: Tensor, margin: float) -> Tensor:
    """Σ_c Σ_{c' ≠ c} max(0, ν − ‖w_c − w_c'‖)² for W of shape (C, l), rows scaled to length 1 (Yu et al. 2020, eq. 7)."""
    unit = torch.nn.functional.normalize(weight, dim=1)
    # pdist has each pair once, and a zero distance no gradient that is infinite.
    return 2 * (margin - torch.pdist(unit)).clamp(min=0).square().sum()


@dataclass(frozen=True)
class Spreading:
    """After another aggregation, a gradient step on the head's `spread_out`.

    Attributes:
        margin: ν ≥ 0, the distance beyond which two classes don't repel; √2 is that of orthogonal ones.
        lr: η ≥ 0 of the step.
        inner: the aggregation before it.
    """

    margin: float = 2**0.5
    lr: float = 0.1
    inner: Aggregation = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        not_negative(margin=self.margin, lr=self.lr)

    @property
    def uniform(self) -> bool:
        """As the inner aggregation."""
        return self.inner.uniform

    def start(self, model: Classifier) -> State:
        """The inner aggregation's state.

        Raises:
            ValueError: if the head is fixed: there would be nothing to spread.
        """
        if not model.head.weight.requires_grad:
            raise ValueError("FedAwS spreads a head that is trained; a fixed one stays as it is")
        return self.inner.start(model)

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: Round
    ) -> tuple[State, State]:
        """W ← W − η∇spread_out(W)."""
        proposed, state = self.inner.combine(weights, updates, state, round_)
        head = proposed[HEAD].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(spread_out(head, self.margin), head)
        return proposed | {HEAD: head.detach() - self.lr * gradient}, state
