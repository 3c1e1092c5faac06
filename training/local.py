"""A member's side of a round: train the received weights on one's own records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from training.algorithms import Batch, Site, Update
from training.data import batches
from training.seeding import Stream, torch_seeded

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms import Round, State
    from training.data import Dataset
    from training.partition import Partition
    from training.recipe import Recipe


@dataclass(frozen=True)
class Task:
    """What a member needs for one round: who, which round, and what the server sent and itself kept."""

    member: int
    round: Round
    weights: State
    broadcasts: tuple[State, ...]
    memory: tuple[State, ...]


class LocalTrainer:
    """One resident model that does any member's task; what it returns depends on the task alone.

    Args:
        recipe: the experiment.
        data: the records that the partition deals out.
        partition: who holds which of them.
    """

    def __init__(self, recipe: Recipe, data: Dataset, partition: Partition) -> None:
        self._recipe = recipe
        self._data = data
        self._partition = partition
        self._model = recipe.build(data.classes)

    def __call__(self, task: Task) -> Update:
        """Train for `local_epochs` by SGD from rest on the loss plus the algorithm's penalties."""
        recipe, model = self._recipe, self._model
        own = self._data.subset(torch.from_numpy(self._partition.members[task.member]))
        counts = torch.bincount(own.y, minlength=own.classes)
        sites = [
            Site(model, own, task.weights, broadcast, memory, counts, task.round)
            for broadcast, memory in zip(task.broadcasts, task.memory, strict=True)
        ]
        model.load_state_dict(task.weights, strict=False)  # a fixed head isn't sent: it stays as built
        for term, site in zip(recipe.algorithm.terms, sites, strict=True):
            term.begin(site)
        model.train()
        optimiser = torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad],
            lr=task.round.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )
        steps, total = 0, torch.zeros(())
        with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, task.round.index, task.member):
            for _ in range(recipe.local_epochs):
                for indices in batches(len(own), recipe.batch_size):
                    loss = self._objective(own.x[indices], own.y[indices], sites)
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                    optimiser.step()
                    total += loss.detach()
                    steps += 1
        finished = [
            term.finish(site, steps) for term, site in zip(recipe.algorithm.terms, sites, strict=True)
        ]
        return Update(
            weights={name: tensor.clone() for name, tensor in model.shared_weights().items()},
            records=len(own),
            steps=steps,
            loss=float(total) / steps,
            messages=tuple(message for message, _ in finished),
            memory=tuple(memory for _, memory in finished),
        )

    def _objective(self, x: Tensor, y: Tensor, sites: list[Site]) -> Tensor:
        model = self._model
        terms = list(zip(self._recipe.algorithm.terms, sites, strict=True))
        z = model.features(x)
        for term, site in terms:
            z = term.features(z, y, site)
        logits: Tensor = model.head(z)
        for term, site in terms:
            logits = term.logits(logits, y, site)
        batch = Batch(x, y, z, logits)
        loss = self._recipe.loss(logits, y)
        for term, site in terms:
            loss = loss + term.penalty(batch, site)
        return loss
