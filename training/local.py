"""A member's side of a round: train the received weights on one's own records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from training.algorithms import Batch, Site, Term, Update
from training.data import batches, crop_and_flip
from training.hardware import CPU, Hardware
from training.seeding import Stream, torch_seeded

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms import Round, State
    from training.data import Dataset
    from training.heads import Classifier
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
        hardware: where to train.
    """

    def __init__(self, recipe: Recipe, data: Dataset, partition: Partition, hardware: Hardware = CPU) -> None:
        self._recipe = recipe
        # What is not on the processor stays there: a member's records are then drawn from those, and not sent in every round.
        self._data = data if hardware.device == "cpu" else replace(hardware.records(data), groups=None)
        self._partition = partition
        self._hardware = hardware
        self._model = recipe.build(data.classes)
        hardware.model(self._model)
        self._features = hardware.features(self._model)
        self._trainable = {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def __call__(self, task: Task) -> Update:
        """Train for `local_epochs` by SGD from rest on the loss plus the algorithm's penalties."""
        recipe, model, place = self._recipe, self._model, self._hardware
        held = torch.from_numpy(self._partition.members[task.member]).to(self._data.y.device)
        own = place.records(self._data.subset(held))
        received = place.state(task.weights)
        counts = torch.bincount(own.y, minlength=own.classes)
        sites = [
            Site(
                model,
                own,
                received,
                received,
                place.state(broadcast),
                place.state(memory),
                counts,
                task.round,
            )
            for broadcast, memory in zip(task.broadcasts, task.memory, strict=True)
        ]
        model.load_state_dict(received, strict=False)  # a fixed head isn't sent: it stays as built
        for term, site in zip(recipe.algorithm.terms, sites, strict=True):
            term.begin(site)
        if any(type(term).begin is not Term.begin for term in recipe.algorithm.terms):
            origin = received | _changed(model, received)
            sites = [replace(site, origin=origin) for site in sites]
        model.train()
        optimiser = place.sgd(
            self._trainable.values(),
            lr=task.round.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )
        steps, total = 0, torch.zeros((), device=place.device)
        with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, task.round.index, task.member):
            for epoch in range(recipe.local_epochs):
                self._choose(epoch)
                for indices in batches(len(own), recipe.batch_size, place.device):
                    x = own.x[indices]
                    rows = None if recipe.augment else indices
                    loss, objective = self._objective(
                        crop_and_flip(x) if recipe.augment else x, own.y[indices], rows, sites
                    )
                    optimiser.zero_grad()
                    objective.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                    optimiser.step()
                    total += loss.detach()
                    steps += 1
        for p in self._trainable.values():
            p.requires_grad_()
        finished = [
            term.finish(site, steps) for term, site in zip(recipe.algorithm.terms, sites, strict=True)
        ]
        return Update(
            weights=_home(model.shared_weights()),
            records=len(own),
            steps=steps,
            loss=float(total) / steps,
            messages=tuple(_home(message) for message, _ in finished),
            memory=tuple(_home(memory) for _, memory in finished),
        )

    def _choose(self, epoch: int) -> None:
        """Leave on what every term trains in this epoch. SGD passes over what has no gradient."""
        for name, p in self._trainable.items():
            p.requires_grad_(self._recipe.trains(name, epoch))

    def _objective(
        self, x: Tensor, y: Tensor, rows: Tensor | None, sites: list[Site]
    ) -> tuple[Tensor, Tensor]:
        """The loss of the records, and what is descended: that with every term's penalty."""
        model = self._model
        terms = list(zip(self._recipe.algorithm.terms, sites, strict=True))
        with self._hardware.arithmetic():
            z = self._features(x)
            seen = z
            for term, site in terms:
                seen = term.features(seen, y, site)
            logits: Tensor = model.head(seen)
            for term, site in terms:
                logits = term.logits(logits, y, site)
            batch = Batch(x, y, z, logits, rows)
            loss = objective = self._recipe.loss(logits, y)
            for term, site in terms:
                objective = objective + term.penalty(batch, site)
        return loss, objective


def _changed(model: Classifier, received: State) -> State:
    """Copies of the weights that are no longer those received."""
    now = model.shared_weights().items()
    return {name: tensor.clone() for name, tensor in now if not torch.equal(tensor, received[name])}


def _home(state: State) -> State:
    """Copies on the CPU, laid out as a snapshot would give them back: `contiguous` leaves strides that convolutions go by."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
