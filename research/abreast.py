"""Train the methods of one table side by side on one GPU: twelve runs of 1,000 rounds of a small CNN in four minutes.

    python -m research.abreast fedetf-fedavg/moon-cnn fedetf-moon/moon-cnn --output runs/reproduce-fedetf  # needs CUDA

Steps of small batches leave a GPU idle. Here each method has a few resident models, each on a stream of its own, and a member's whole
local training is one CUDA graph. Draws, batches, penalties and aggregation are those of `training.train`, to which results are equal up
to rounding (held by a test); convolutions use TF32. Members have equally many records, and the learning rate is constant: graphs hold both.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from research.papers import paper_experiment
from training.algorithms.base import Site, State, TrainingRound, Update, trained_parameters
from training.algorithms.features import GlobalMemory
from training.data.dataset import Dataset, crop_and_flip, draw_moves, shuffle_batches
from training.experiments.config import Experiment
from training.experiments.running import PreparedData, diverged_result, finish_run, prepare_data
from training.federated import DivergedError, Trained, draw_participants
from training.hardware import Hardware
from training.local import MomentumSGD, add_slopes, collect_quadratics, compute_objective
from training.recipe import Constant, Recipe
from training.results import write_result
from training.resume import RoundRecord
from training.seeding import Stream, torch_seeded

_EVALUATION_BATCH = 2000
_ROUNDS_AHEAD = 2
"""Rounds that the processor may queue before the GPU has finished them."""
_PROGRESS_EVERY = 25
"""Rounds between looks for runs that diverged, for which the GPU runs empty."""


class Draws(NamedTuple):
    """What a participant trains on in a round.

    Attributes:
        x: its batches' images one after another, scaled, (E·n, channels, height, width).
        y: their labels, (E·n,).
        own_x: its records, scaled, (n, channels, height, width).
        own_y: their labels, (n,).
        counts: its records of each class, (C,).
    """

    x: Tensor
    y: Tensor
    own_x: Tensor
    own_y: Tensor
    counts: Tensor


class Drawing:
    """Draws a round's participants and their batches as `training.train` does; all methods share them."""

    def __init__(self, recipe: Recipe, scene: PreparedData, hardware: Hardware) -> None:
        self._recipe, self._partition, self._hardware = recipe, scene.partition, hardware
        self._data = hardware.move_records(scene.data.train)
        self._scale = recipe.build(self._data.classes).extractor.to(hardware.device).scale_pixels
        self._members = [torch.from_numpy(rows) for rows in scene.partition.members]
        if len({len(rows) for rows in self._members}) > 1:
            raise ValueError("members must have equally many records: a graph holds the lengths of batches")
        self.classes, self.members = self._data.classes, len(self._members)
        self.records = len(self._members[0])
        with torch_seeded(0, Stream.LOCAL_TRAINING):
            self.lengths = [len(part) for part in shuffle_batches(self.records, recipe.batch_size)]

    def draw_round(self, index: int, members: Sequence[int]) -> list[Draws]:
        """Draw each member's batches in the round."""
        recipe, data, count = self._recipe, self._data, len(members)
        orders, moves = [], []
        for member in members:
            with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, index, member):
                for _ in range(recipe.local_epochs):
                    drawn = draw_moves(self.records) if recipe.augment else None
                    order = torch.cat(list(shuffle_batches(self.records, recipe.batch_size)))
                    orders.append(self._members[member][order])
                    if drawn is not None:
                        moves.append(drawn[order])
        rows, own = self._send(orders), self._send([self._members[member] for member in members])
        x = data.x[rows]
        if moves:
            x = crop_and_flip(x, self._send(moves))
        x, own_x = (self._hardware.move_images(self._scale(each)) for each in (x, data.x[own]))
        y, own_y = data.y[rows], data.y[own]
        counts = functional.one_hot(own_y.view(count, -1), data.classes).sum(dim=1)
        parts = (*(each.chunk(count) for each in (x, y, own_x, own_y)), counts)
        return [Draws(*each) for each in zip(*parts, strict=True)]

    def _send(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)).to(self._hardware.device, non_blocking=True)


class Replayed:
    """Functions of tensors that stay in place: captured as CUDA graphs on a GPU, called on a CPU."""

    def __init__(self, *, captures: bool, met: set[Any]) -> None:
        self._captures, self._met = captures, met
        self._graphs: dict[Any, torch.cuda.CUDAGraph] = {}

    def run(self, key: Any, function: Callable[[], None]) -> None:
        """Run a function: called the first time that any model of the method meets the key, captured the second, replayed after that."""
        if not self._captures or key not in self._met:
            self._met.add(key)
            function()
            return
        if key not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            function()
            graph.capture_end()
            self._graphs[key] = graph
        self._graphs[key].replay()


class Slot:
    """A resident model of a method, which trains one participant after another on its stream."""

    def __init__(self, lane: "Lane", draws: Draws) -> None:
        self._lane, self._recipe = lane, lane.recipe
        self.stream = lane.make_stream()
        self._model = copy.deepcopy(lane.model).train()
        self._model.extractor.expects((), ())  # `Drawing` scales
        self._draws = Draws(*(tensor.clone() for tensor in draws))
        self._records = Dataset(self._draws.own_x, self._draws.own_y, len(draws.counts), "own")
        self._weights = self._model.shared_weights()
        self._trainable = trained_parameters(self._model)
        self._velocities = {p: torch.zeros_like(p, requires_grad=False) for p in self._trainable.values()}
        self._total = torch.zeros((), device=lane.hardware.device)
        self._memory: list[State] = [{} for _ in self._recipe.algorithm.terms]
        self._replayed = Replayed(captures=self.stream is not None, met=lane.met)

    def train(self, member: int, place: int, draws: Draws, round_: TrainingRound) -> Update:
        """Train a member; its weights lie in the lane's outputs of that place until the next round."""
        lane, terms = self._lane, self._recipe.algorithm.terms
        for mine, drawn in zip(self._draws, draws, strict=True):
            mine.copy_(drawn)
        kept = lane.memory.get(member, [{} for _ in terms])
        _copy_states(kept, self._memory)
        sites = [
            Site(
                self._model,
                self._records,
                received=lane.weights,
                origin=lane.weights,
                broadcast=broadcast,
                memory=memory if known else {},
                label_counts=self._draws.counts,
                round=round_,
            )
            for broadcast, memory, known in zip(lane.broadcasts, self._memory, kept, strict=True)
        ]
        late = [round_.index + 1 >= term.warmup for term in terms if isinstance(term, GlobalMemory)]
        key = (*map(bool, kept), *late)  # what decides which operations a step consists of
        self._replayed.run(key, lambda: self._take_steps(sites, round_.lr))
        lane.losses[round_.index, place].copy_(self._total)
        out = lane.outputs[place]
        _copy_state(self._weights, out)
        finished = [term.finish(site, lane.steps) for term, site in zip(terms, sites, strict=True)]
        _copy_states([memory for _, memory in finished], lane.memory.setdefault(member, kept))
        messages = tuple(message for message, _ in finished)
        return Update(out, lane.drawing.records, lane.steps, nan, messages)

    def _take_steps(self, sites: list[Site], lr: float) -> None:
        lane, recipe = self._lane, self._recipe
        with torch.no_grad():
            _copy_state(lane.weights, self._weights)
            torch._foreach_zero_(list(self._velocities.values()))
            self._total.zero_()
            decays, slopes = collect_quadratics(recipe, self._trainable, sites)
        by_weight = {self._trainable[name]: slope for name, slope in slopes.items()}
        velocities = self._velocities if recipe.momentum else {}
        descent = MomentumSGD(decays, lr, recipe.momentum, velocities)
        start = 0
        for length in lane.drawing.lengths * recipe.local_epochs:
            x, y = self._draws.x[start : start + length], self._draws.y[start : start + length]
            start += length
            loss, objective = compute_objective(recipe, self._model, self._model.features, x, y, None, sites)
            objective.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            add_slopes(by_weight)
            descent.step()
            self._total.add_(loss.detach())


class Lane:
    """One method's run: its server, and its resident models.

    Attributes:
        memory: by member, what it keeps of each term.
        met: what decided which operations a step consisted of, so far.
        outputs: the weights that a round's participants trained, in their order.
        losses: sums of batches' losses by round and participant, (R, participants).
        tested: loss and accuracy on the test records by round, NaN where not evaluated, (R, 2).
    """

    def __init__(
        self, experiment: Experiment, recipe: Recipe, drawing: Drawing, hardware: Hardware, slots: int
    ) -> None:
        if not isinstance(recipe.schedule, Constant) or recipe.calibrate_every is not None:
            raise ValueError("the learning rate must be constant and the head must stay: graphs hold both")
        self.experiment, self.recipe, self.drawing, self.hardware = experiment, recipe, drawing, hardware
        self.stream = self.make_stream()
        self.model = recipe.build(drawing.classes)
        algorithm, move = recipe.algorithm, hardware.move_state
        self.server = move(algorithm.aggregation.start(self.model))
        self.broadcasts = [move(term.start(self.model)) for term in algorithm.terms]
        hardware.move_model(self.model)
        self.weights = {name: tensor.clone() for name, tensor in self.model.shared_weights().items()}
        self.memory: dict[int, list[State]] = {}
        self.met: set[Any] = set()
        count = max(1, round(recipe.participation * drawing.members))
        self.outputs = [{name: tensor.clone() for name, tensor in self.weights.items()} for _ in range(count)]
        self.losses = torch.zeros(recipe.rounds, count, device=hardware.device)
        self.tested = torch.full((recipe.rounds, 2), nan, device=hardware.device)
        self.seconds = [0.0] * recipe.rounds
        self.steps = len(drawing.lengths) * recipe.local_epochs
        self._sent_bytes = 0
        self._held: list[list[Update]] = []
        self._slots: list[Slot] = []
        self._slot_count = min(slots, count)

    def make_stream(self) -> torch.cuda.Stream | None:
        """Return a new stream of the GPU, or None on a CPU."""
        return None if self.hardware.is_cpu else torch.cuda.Stream(self.hardware.device)  # type: ignore[no-untyped-call]

    def run_round(self, round_: TrainingRound, chosen: Sequence[int], draws: Sequence[Draws]) -> None:
        """Queue a round."""
        if not self._slots:
            self._slots = [Slot(self, draws[0]) for _ in range(self._slot_count)]
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())  # the draws'
        with _on_stream(self.stream):
            for slot in self._slots:
                _wait_for_stream(slot.stream, self.stream)
            updates = []
            for place, member in enumerate(chosen):
                slot = self._slots[place % len(self._slots)]
                with _on_stream(slot.stream):
                    updates.append(slot.train(member, place, draws[place], round_))
            for slot in self._slots:
                _wait_for_stream(self.stream, slot.stream)
            # A freed message's memory is at once the slot's stream's again, which may be another method's too: torch has 32 streams.
            self._held = [*self._held[-_ROUNDS_AHEAD:], updates]
            algorithm = self.recipe.algorithm
            # Copied in place: what one stream made must not be freed while another may still read it.
            weights, server = algorithm.combine(self.weights, updates, self.server, round_)
            for i, term in enumerate(algorithm.terms):
                messages = [update.messages[i] for update in updates]
                _copy_state(term.reduce(self.broadcasts[i], messages, round_), self.broadcasts[i])
            _copy_state(server, self.server)
            _copy_state(weights, self.weights)
        sent = (updates[0].weights, *updates[0].messages)
        self._sent_bytes = sum(tensor.nbytes for part in sent for tensor in part.values())

    @torch.no_grad()
    def queue_evaluation(self, index: int, test: Dataset) -> None:
        """Queue an evaluation of the global model on the test records."""
        with _on_stream(self.stream):
            self.model.load_state_dict(self.weights, strict=False)
            self.model.eval()
            logits = torch.cat([self.model(part) for part in torch.split(test.x, _EVALUATION_BATCH)])
            self.tested[index, 0] = self.recipe.loss(logits, test.y)
            self.tested[index, 1] = (logits.argmax(dim=1) == test.y).float().mean()

    def find_divergence(self, done: int) -> DivergedError | None:
        """Return the first round whose local loss was not finite, or the last one if a weight is not."""
        lost = (~self.losses[:done].isfinite()).any(dim=1).nonzero()
        if len(lost):
            return DivergedError(int(lost[0]) + 1, self.recipe.lr)
        finite = all(bool(tensor.isfinite().all()) for tensor in self.weights.values())
        return None if finite else DivergedError(done, self.recipe.lr)

    def make_trained(self) -> Trained:
        """Return the run after its last round."""
        losses = (self.losses.double().mean(dim=1) / self.steps).tolist()
        tested = self.tested.tolist()
        history = tuple(
            RoundRecord(
                round=t + 1,
                rounds=self.recipe.rounds,
                lr=self.recipe.lr_at(t),
                local_loss=losses[t],
                test_loss=tested[t][0],
                accuracy=tested[t][1],
                seconds=self.seconds[t],
                upload_bytes=self._sent_bytes,
            )
            for t in range(self.recipe.rounds)
        )
        self.model.load_state_dict(self.weights, strict=False)
        return Trained(self.model.cpu().eval(), history, self.recipe)


def train_abreast(
    experiments: Sequence[Experiment],
    seed: int,
    scene: PreparedData,
    hardware: Hardware,
    *,
    slots: int = 5,
    watched: Callable[[int], bool] = lambda _: True,
    progress: Callable[[int, Sequence[Lane]], None] = lambda *_: None,
) -> list[Trained | DivergedError]:
    """Train experiments that differ in algorithm and head only, and return their runs in order.

    Args:
        experiments: their experiments.
        seed: of every run.
        scene: the records, and the partition among equally large members.
        hardware: where to train.
        slots: resident models of each method.
        watched: which rounds, from 1, end in an evaluation; the last one does.
        progress: called from time to time with the number of rounds that are done.
    """
    recipes = [each.make_recipe(scene.data.train, seed) for each in experiments]
    first = recipes[0]
    drawing = Drawing(first, scene, hardware)
    lanes = [Lane(*each, drawing, hardware, slots) for each in zip(experiments, recipes, strict=True)]
    test = hardware.move_records(scene.data.test)
    records, members = int(scene.partition.sizes.sum()), len(scene.partition)
    diverged: dict[Lane, DivergedError] = {}
    ring: list[list[Draws]] = []  # kept until no stream can still read them
    queued: list[list[torch.cuda.Event]] = []
    began = time.perf_counter()
    for index in range(first.rounds):
        running = [lane for lane in lanes if lane not in diverged]
        round_ = TrainingRound(index, first.lr_at(index), members, first.momentum, records)
        chosen = draw_participants(first, round_)
        ring = [*ring[-2 * _ROUNDS_AHEAD :], drawing.draw_round(index, chosen)]
        last = index + 1 == first.rounds
        for lane in running:
            lane.run_round(round_, chosen, ring[-1])
            if last or watched(index + 1):
                lane.queue_evaluation(index, test)
        queued.append([lane.stream.record_event() for lane in running if lane.stream is not None])
        for event in queued.pop(0) if len(queued) > _ROUNDS_AHEAD else ():
            event.synchronize()
        began, spent = time.perf_counter(), time.perf_counter() - began
        for lane in running:
            lane.seconds[index] = spent / len(running)
        if last or (index + 1) % _PROGRESS_EVERY == 0:
            if not hardware.is_cpu:
                torch.cuda.synchronize()
            found = {
                lane: error for lane in running if (error := lane.find_divergence(index + 1)) is not None
            }
            diverged |= found
            progress(index + 1, lanes)
    return [diverged.get(lane) or lane.make_trained() for lane in lanes]


def _copy_state(source: State, target: State) -> None:
    """Copy tensors in place, and add those that the target lacks."""
    missing = {name: tensor.clone() for name, tensor in source.items() if name not in target}
    there = [name for name in source if name in target]
    if there:
        torch._foreach_copy_([target[name] for name in there], [source[name] for name in there])
    target.update(missing)


def _copy_states(sources: Sequence[State], targets: Sequence[State]) -> None:
    for source, target in zip(sources, targets, strict=True):
        _copy_state(source, target)


@contextmanager
def _on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    with nullcontext() if stream is None else torch.cuda.stream(stream):
        yield


def _wait_for_stream(stream: torch.cuda.Stream | None, other: torch.cuda.Stream | None) -> None:
    if stream is not None and other is not None:
        stream.wait_stream(other)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", metavar="NAME[/VARIANT[+VARIANT]]")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's where not given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    hardware = Hardware.choose_device(args.device)
    named = (each.partition("/") for each in args.experiments)
    experiments = [paper_experiment(name, [*filter(None, words.split("+"))]) for name, _, words in named]
    scene = prepare_data(experiments[0], args.seed, args.data)
    rounds, began = experiments[0].training.rounds, time.perf_counter()

    def print_progress(done: int, lanes: Sequence[Lane]) -> None:
        tested = (lane.tested[:done, 1] for lane in lanes)
        known = (each[~each.isnan()] for each in tested)
        shown = " ".join(f"{float(each[-1]):.1%}" if len(each) else "–" for each in known)
        print(f"round {done} after {time.perf_counter() - began:.0f} s: {shown}", flush=True)

    name = torch.cuda.get_device_name() if not hardware.is_cpu else hardware.device
    place = f"{name}, {len(experiments)} runs side by side, torch {torch.__version__}"
    runs = train_abreast(
        experiments,
        args.seed,
        scene,
        hardware,
        watched=lambda round_: round_ % 50 == 0 or round_ > rounds - 50,
        progress=print_progress,
    )
    for experiment, run in zip(experiments, runs, strict=True):
        path = args.output / experiment.name.replace("/", "-") / f"seed-{args.seed}.json"
        if isinstance(run, DivergedError):
            write_result(diverged_result(experiment, args.seed, run, folder=args.data, place=place), path)
            print(f"{experiment.name}: {run}", flush=True)
            continue
        result = finish_run(experiment, args.seed, scene, run, hardware=hardware, place=place).result
        write_result(result, path)
        heads = ", ".join(f"{each.kind} {each.accuracy:.1%}" for each in result.calibrations)
        print(f"{experiment.name}: {result.accuracy:.1%}, then {heads}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
