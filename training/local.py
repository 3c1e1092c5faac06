"""A member's side of a round: train the received weights on its own records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.sgd import sgd

from training.algorithms.base import Batch, Site, State, Term, TrainingRound, Update, zero_state
from training.data.dataset import Dataset, crop_and_flip, draw_moves, shuffle_batches
from training.hardware import CPU_HARDWARE, Hardware
from training.heads import Classifier
from training.imports import is_import_path
from training.partition import Partition
from training.recipe import Recipe
from training.replay import Eager, Replay
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

    def __init__(
        self, recipe: Recipe, data: Dataset, partition: Partition, hardware: Hardware = CPU_HARDWARE
    ) -> None:
        self._recipe = recipe
        # A GPU keeps all records: members' are drawn from them instead of being copied in every round.
        self._data = data if hardware.device == "cpu" else replace(hardware.move_records(data), groups=None)
        self._partition = partition
        self._hardware = hardware
        self._model = recipe.build(data.classes)
        hardware.move_model(self._model)
        self._trainable = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        replayed = hardware.is_cuda and _is_ours(recipe, self._model)
        self._steps = Replay(hardware) if replayed else Eager(hardware)

    def __call__(self, task: Task) -> Update:
        """Train for `local_epochs` by SGD on the loss plus the algorithm's penalties."""
        with self._steps.stream_context():
            return self._train_task(task)

    def _train_task(self, task: Task) -> Update:
        recipe, model, place = self._recipe, self._model, self._hardware
        held = torch.from_numpy(self._partition.members[task.member]).to(self._data.y.device)
        own = place.move_records(self._data.subset(held))
        sites = self._load_sites(task, own)
        model.train()
        decays, slopes = collect_quadratics(recipe, self._trainable, sites)
        slopes = self._steps.hold_tensors("slopes", {name: s for name, s in slopes.items() if s.any()})
        velocities = self._steps.hold_tensors("velocities", zero_state(model) if recipe.momentum else {})
        descent = MomentumSGD(decays, task.round.lr, recipe.momentum, self._by_weight(velocities))
        [total] = self._steps.hold_tensors("total", {"": torch.zeros((), device=place.device)}).values()
        source = own if place.is_cpu else self._data

        def step(rows: Tensor, indices: Tensor, moves: Tensor | None = None) -> None:
            x = source.x[rows]
            known: Tensor | None = indices
            if moves is not None:
                x, known = crop_and_flip(x, moves), None
            loss, objective = compute_objective(
                recipe, model, model.features, x, source.y[rows], known, sites
            )
            objective.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            add_slopes(self._by_weight(slopes))
            descent.step()
            total.add_(loss.detach())

        steps = 0
        with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, task.round.index, task.member):
            for epoch in range(recipe.local_epochs):
                chosen = self._enable_gradients(epoch)
                moves = draw_moves(len(own), place.device) if recipe.augment else None
                for indices in shuffle_batches(len(own), recipe.batch_size, place.device):
                    alike = chosen, tuple(slopes), _captured_key(task, sites)
                    take = self._steps.step_for(task.round.index, alike, step) if steps else step
                    rows = indices if place.is_cpu else held[indices]
                    take(rows, indices, *(() if moves is None else (moves[indices],)))
                    steps += 1
        for p in self._trainable.values():
            p.requires_grad_()
        finished = [
            term.finish(site, steps) for term, site in zip(recipe.algorithm.terms, sites, strict=True)
        ]
        return Update(
            weights=_to_cpu(model.shared_weights()),
            records=len(own),
            steps=steps,
            loss=float(total) / steps,
            messages=tuple(_to_cpu(message) for message, _ in finished),
            memory=tuple(_to_cpu(memory) for _, memory in finished),
        )

    def _load_sites(self, task: Task, own: Dataset) -> list[Site]:
        """Load the received weights, let terms begin, and return what each term sees of the member."""
        model, held = self._model, self._steps.hold_tensors
        received = held("received", task.weights)
        [counts] = held("counts", {"": torch.bincount(own.y, minlength=own.classes)}).values()
        states = zip(task.broadcasts, task.memory, strict=True)
        sites = [
            Site(
                model,
                own,
                received,
                received,
                held(f"broadcast {i}", broadcast),
                held(f"memory {i}", memory),
                counts,
                task.round,
            )
            for i, (broadcast, memory) in enumerate(states)
        ]
        model.load_state_dict(received, strict=False)  # a fixed head is not sent and stays as built
        terms = self._recipe.algorithm.terms
        for term, site in zip(terms, sites, strict=True):
            term.begin(site)
        if all(type(term).begin is Term.begin for term in terms):
            return sites
        origin = received | _changed_weights(model, received)
        return [replace(site, origin=origin) for site in sites]

    def _by_weight(self, state: State) -> dict[Parameter, Tensor]:
        return {self._trainable[name]: tensor for name, tensor in state.items()}

    def _enable_gradients(self, epoch: int) -> tuple[str, ...]:
        """Enable gradients of the weights that every term trains in this epoch, and return their names; SGD skips the others."""
        for name, p in self._trainable.items():
            p.requires_grad_(self._recipe.trains(name, epoch))
        return tuple(name for name, p in self._trainable.items() if p.requires_grad)


def collect_quadratics(
    recipe: Recipe, trainable: Mapping[str, Parameter], sites: Sequence[Site]
) -> tuple[dict[float, list[Parameter]], State]:
    """Return the terms' quadratic penalties as weights by their decay, and constant slopes by the name of a weight that a term penalises.

    Σ ½κ‖θ − θ^t‖² + ⟨s, θ⟩ has the gradient κθ + (s − κθ^t): weight decay and a slope that stays the same all round.
    """
    decays: dict[float, list[Parameter]] = {}
    slopes: State = {}
    for name, p in trainable.items():
        decay = recipe.weight_decay
        for term, site in zip(recipe.algorithm.terms, sites, strict=True):
            if type(term).quadratic is Term.quadratic or recipe.algorithm.keeps(name):
                continue
            curvature, linear = term.quadratic(name, site)
            decay += curvature
            slope = slopes.setdefault(name, torch.zeros_like(p, requires_grad=False))
            slope.add_(linear).sub_(site.origin[name], alpha=curvature)
        decays.setdefault(decay, []).append(p)
    return decays, slopes


def compute_objective(
    recipe: Recipe,
    model: Classifier,
    features: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    rows: Tensor | None,
    sites: Sequence[Site],
) -> tuple[Tensor, Tensor]:
    """Return the loss of the records, and the objective: the loss plus every term's penalty."""
    terms = list(zip(recipe.algorithm.terms, sites, strict=True))
    z = features(x)
    seen = z
    for term, site in terms:
        seen = term.features(seen, y, site)
    logits: Tensor = model.head(seen)
    for term, site in terms:
        logits = term.logits(logits, y, site)
    batch = Batch(x, y, z, logits, rows)
    loss = objective = recipe.loss(logits, y)
    for term, site in terms:
        objective = objective + term.penalty(batch, site)
    return loss, objective


class MomentumSGD:
    """SGD with momentum, all weights of one decay at once, by torch's function.

    Its class `torch.optim.SGD` takes the same steps, but imports `torch.compile` first: over a second in each process.
    """

    def __init__(
        self,
        decays: dict[float, list[Parameter]],
        lr: float,
        momentum: float,
        velocities: dict[Parameter, Tensor],
    ) -> None:
        self._decays, self._lr, self._momentum, self._velocities = decays, lr, momentum, velocities

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


def _is_ours(recipe: Recipe, model: Classifier) -> bool:
    """Return whether a step runs no code from import paths, which may do something else with each batch."""
    parts = (recipe.loss, model.head, *recipe.algorithm.terms)
    ours = all(part.__module__.startswith("training.") for part in parts)
    return ours and not is_import_path(recipe.model.architecture)


def _captured_key(task: Task, sites: list[Site]) -> tuple[object, ...]:
    """Return what a captured step depends on beside held tensors: the memory's names, and the member if terms computed something once."""
    once = task.member if any(site.once for site in sites) else None
    return once, *(tuple(memory) for memory in task.memory)


def add_slopes(slopes: Mapping[Parameter, Tensor]) -> None:
    """Add constant slopes to the gradients of the weights that have one."""
    trained = [(p.grad, slope) for p, slope in slopes.items() if p.grad is not None]
    if trained:
        torch._foreach_add_(*map(list, zip(*trained, strict=True)))


def _changed_weights(model: Classifier, received: State) -> State:
    """Copy the weights that differ from those received."""
    now = model.shared_weights().items()
    return {name: tensor.clone() for name, tensor in now if not torch.equal(tensor, received[name])}


def _to_cpu(state: State) -> State:
    """Copy to the CPU in the layout that a snapshot restores; `contiguous` may keep strides, and convolutions depend on them."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
