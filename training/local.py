"""A member's side of a round: train the received weights on its own records."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.sgd import sgd

from training.algorithms import Batch, Site, State, Term, TrainingRound, Update
from training.data import Dataset, batches, crop_and_flip, draw_moves
from training.hardware import CPU, Hardware
from training.heads import Classifier
from training.partition import Partition
from training.recipe import Recipe
from training.seeding import Stream, torch_seeded


@dataclass(frozen=True)
class Task:
    """A member's input for one round: the round, what the server sent and what the member kept."""

    member: int
    round: TrainingRound
    weights: State
    broadcasts: tuple[State, ...]
    memory: tuple[State, ...]


class LocalTrainer:
    """Trains any member on one resident model; the result depends on the task only."""

    def __init__(self, recipe: Recipe, data: Dataset, partition: Partition, hardware: Hardware = CPU) -> None:
        self._recipe = recipe
        # A GPU keeps all records: members' are drawn from them instead of being copied in every round.
        self._data = data if hardware.device == "cpu" else replace(hardware.records(data), groups=None)
        self._partition = partition
        self._hardware = hardware
        self._model = recipe.build(data.classes)
        hardware.model(self._model)
        self._features = hardware.features(self._model)
        self._trainable = {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def __call__(self, task: Task) -> Update:
        """Train for `local_epochs` by SGD on the loss plus the algorithm's penalties."""
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
        model.load_state_dict(received, strict=False)  # a fixed head is not sent and stays as built
        for term, site in zip(recipe.algorithm.terms, sites, strict=True):
            term.begin(site)
        if any(type(term).begin is not Term.begin for term in recipe.algorithm.terms):
            origin = received | _changed(model, received)
            sites = [replace(site, origin=origin) for site in sites]
        model.train()
        decays, slopes = self._quadratics(sites)
        descent = Descent(decays, task.round.lr, recipe.momentum)
        steps, total = 0, torch.zeros((), device=place.device)
        with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, task.round.index, task.member):
            for epoch in range(recipe.local_epochs):
                self._choose(epoch)
                moves = draw_moves(len(own), place.device) if recipe.augment else None
                for indices in batches(len(own), recipe.batch_size, place.device):
                    x = own.x[indices]
                    rows: Tensor | None = indices
                    if moves is not None:
                        x, rows = crop_and_flip(x, moves[indices]), None
                    loss, objective = self._objective(x, own.y[indices], rows, sites)
                    objective.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                    _add_slopes(slopes)
                    descent.step()
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
        """Enable gradients of the weights that every term trains in this epoch; SGD skips the others."""
        for name, p in self._trainable.items():
            p.requires_grad_(self._recipe.trains(name, epoch))

    def _quadratics(
        self, sites: list[Site]
    ) -> tuple[dict[float, list[Parameter]], list[tuple[Parameter, Tensor]]]:
        """Return the terms' quadratic penalties as weights by their decay, and each weight's constant slope.

        Σ ½κ‖θ − θ^t‖² + ⟨s, θ⟩ has the gradient κθ + (s − κθ^t): weight decay and a slope that stays the same all round.
        """
        decays: dict[float, list[Parameter]] = {}
        slopes = []
        for name, p in self._trainable.items():
            decay, slope = self._recipe.weight_decay, torch.zeros_like(p, requires_grad=False)
            for term, site in zip(self._recipe.algorithm.terms, sites, strict=True):
                curvature, linear = term.quadratic(name, site)
                decay += curvature
                slope.add_(linear).sub_(site.origin[name], alpha=curvature)
            decays.setdefault(decay, []).append(p)
            if slope.any():
                slopes.append((p, slope))
        return decays, slopes

    def _objective(
        self, x: Tensor, y: Tensor, rows: Tensor | None, sites: list[Site]
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the records, and the objective: the loss plus every term's penalty."""
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


class Descent:
    """SGD with momentum, all weights of one decay at once, by torch's function.

    Its class `torch.optim.SGD` takes the same steps, but imports `torch.compile` first: over a second in each process.
    """

    def __init__(self, decays: dict[float, list[Parameter]], lr: float, momentum: float) -> None:
        self._decays, self._lr, self._momentum = decays, lr, momentum
        self._velocities = {
            p: torch.zeros_like(p, requires_grad=False) for own in decays.values() for p in own if momentum
        }

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights that have a gradient, and forget it."""
        for decay, own in self._decays.items():
            moved = [p for p in own if p.grad is not None]
            sgd(
                list[Tensor](moved),
                [p.grad for p in moved if p.grad is not None],
                [self._velocities.get(p) for p in moved],
                fused=True,
                weight_decay=decay,
                momentum=self._momentum,
                lr=self._lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            for p in moved:
                p.grad = None


def _add_slopes(slopes: list[tuple[Parameter, Tensor]]) -> None:
    trained = [(p.grad, slope) for p, slope in slopes if p.grad is not None]
    if trained:
        torch._foreach_add_(*map(list, zip(*trained, strict=True)))


def _changed(model: Classifier, received: State) -> State:
    """Copy the weights that differ from those received."""
    now = model.shared_weights().items()
    return {name: tensor.clone() for name, tensor in now if not torch.equal(tensor, received[name])}


def _home(state: State) -> State:
    """Copy to the CPU in the layout that a snapshot restores; `contiguous` may keep strides, and convolutions depend on them."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
