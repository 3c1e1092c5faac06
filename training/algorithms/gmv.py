"""Global memory vectors (Huang et al. 2023, "Neural Collapse Inspired Federated Learning with Non-iid Data")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms.base import Term
from training.ranges import not_negative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from training.algorithms.base import Round, Site, State
    from training.heads import Classifier


_AHEAD = 50
"""Rounds before the first that adds vectors in which they are collected: by then even where one in ten takes part each class was seen."""


@dataclass(frozen=True)
class GlobalMemory(Term):
    """From round R_warm on the head sees f + αμ_y in training (Huang et al. 2023, Algorithm 1), and f alone in use.

    μ_c is the mean over those participants of the last round that hold class c of their own mean feature of it; a class that
    none of them held keeps its vector, so that vectors stay as long as features are. Algorithm 1 divides otherwise:
    `PrintedMemory`. Each sends its C means and which classes it holds: both add up over members. The
    paper computes them from the first round on; here that begins 50 rounds before they are of use.

    Attributes:
        alpha: α ≥ 0.
        warmup: R_warm, the first round, from 1 as the paper counts, that adds vectors: once features are good. 0 is as 1.
    """

    alpha: float = 1.0
    warmup: int = 0

    def __post_init__(self) -> None:
        not_negative(alpha=self.alpha, warmup=self.warmup)

    def start(self, model: Classifier) -> State:
        """μ = 0."""
        return {"means": torch.zeros(model.head.out_features, model.extractor.dim)}

    def features(self, z: Tensor, y: Tensor, site: Site) -> Tensor:
        """F + αμ_y."""
        if site.round.index + 1 < self.warmup:
            return z
        return z + self.alpha * site.broadcast["means"][y]

    @torch.no_grad()
    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """The member's means, (C, l), and its classes, (C,); nothing long before they are of use."""
        del steps
        if self._is_early(site.round):
            return {}, {}
        training = site.model.training
        site.model.eval()
        z = torch.cat([site.model.features(part) for part in torch.split(site.records.x, 512)])
        site.model.train(training)
        means = torch.zeros_like(site.broadcast["means"]).index_add_(0, site.records.y, z)
        held = site.label_counts > 0
        means[held] /= site.label_counts[held, None]
        return {"means": means, "holders": held.to(z.dtype)}, {}

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        """The next μ."""
        if self._is_early(round_):
            return broadcast
        total = torch.stack([message["means"] for message in messages]).sum(dim=0)
        holders = torch.stack([message["holders"] for message in messages]).sum(dim=0)
        means = broadcast["means"].clone()
        held = holders > 0
        means[held] = total[held] / holders[held, None]
        return {"means": means}

    def _is_early(self, round_: Round) -> bool:
        return round_.index + 1 < self.warmup - _AHEAD


@dataclass(frozen=True)
class PrintedMemory(GlobalMemory):
    """μ_c = 1/|S_t| Σ_k (k's mean feature of c), over all participants as Huang et al. 2023 print it (Algorithm 1).

    A participant without the class adds 0, so that μ_c is the holders' mean times the share of them, and 0 where nobody held c.
    """

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        """The next μ."""
        if self._is_early(round_):
            return broadcast
        return {"means": torch.stack([message["means"] for message in messages]).mean(dim=0)}
