"""Train many runs of MOON's CNN, all members at once, on one GPU: CCVR's table 2 in minutes instead of weeks of a processor.

A model of 92,626 weights leaves a GPU idle between kernels, so one step here is every active member's step in every run. Draws, batches,
penalties and aggregation are those of `training.train`, to which results are equal up to rounding (held by a test); all arithmetic is
float32 without TF32. Members with fewer steps drop out of a round as it proceeds. Runs are FedAvg, FedProx, FedAvgM and MOON.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import nan

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from research.stacked.kernels import Kernel, kernels
from training.algorithms.base import State, TrainingRound, Update
from training.algorithms.features import ModelContrastive
from training.algorithms.weights import Proximal
from training.data.dataset import draw_moves, shuffle_batches
from training.experiments.running import PreparedData
from training.federated import Trained
from training.heads import Classifier
from training.recipe import Constant, Recipe
from training.resume import RoundRecord
from training.seeding import Stream, torch_seeded

_CONVOLVED, _SHARED_BYTES = 400, 60_384


@dataclass(frozen=True, eq=False)
class Deal:
    """A member's share of one scene, which every method trains on: the scene's and the member's number, and row numbers."""

    scene: int
    member: int
    rows: Tensor
    steps: int


class Layers:
    """Equal layers of many models: views of one buffer, layer after layer.

    Attributes:
        flat: the buffer.
        each: per tensor of the state, (models, *shape).
    """

    def __init__(self, shapes: Sequence[torch.Size], models: int, device: torch.device) -> None:
        sizes = [shape.numel() for shape in shapes]
        self.flat = torch.zeros(models * sum(sizes), device=device)
        parts = torch.split(self.flat, [models * size for size in sizes])
        self.each = [part.view(models, *shape) for part, shape in zip(parts, shapes, strict=True)]


class Stack:
    """Runs in training. Every scene (a partition under a seed) has the same number of runs, one a method.

    Args:
        scenes: records and partition of each scene; all hold the same images.
        recipes: per scene, each method's recipe; they agree in everything but seed, algorithm and its coefficients.
        device: where to train.
    """

    def __init__(
        self, scenes: Sequence[PreparedData], recipes: Sequence[Sequence[Recipe]], device: torch.device
    ) -> None:
        self._recipes, self._scenes, self._device = recipes, scenes, device
        self._kernel: Kernel = kernels(device)
        recipe, data = recipes[0][0], scenes[0].data
        if not isinstance(recipe.schedule, Constant):
            raise ValueError("stacked runs need a constant learning rate: a captured step holds it")  # noqa: TRY004
        self._recipe = recipe
        self._images = data.train.x.contiguous().to(device)
        self._labels = data.train.y.to(device)
        self._test_images, self._test_labels = data.test.x.contiguous().to(device), data.test.y.to(device)
        moments = torch.tensor([*recipe.model.mean, *recipe.model.std], device=device)
        self._moments = moments if len(moments) else torch.tensor([0.0] * 3 + [1.0] * 3, device=device)
        deals = [
            Deal(
                s,
                k,
                torch.from_numpy(rows),
                recipe.local_epochs * len(list(shuffle_batches(len(rows), recipe.batch_size))),
            )
            for s, scene in enumerate(scenes)
            for k, rows in enumerate(scene.partition.members)
        ]
        self._deals = sorted(deals, key=lambda deal: -deal.steps)
        odd = any(len(deal.rows) % recipe.batch_size == 1 for deal in deals)
        self._batch = recipe.batch_size + odd
        self._methods = len(recipes[0])
        self._models = [
            (deal.scene, method, deal.member) for deal in self._deals for method in range(self._methods)
        ]
        self._classifiers = [[each.build(data.train.classes) for each in own] for own in recipes]
        self.weights = [[_copied(each.shared_weights()) for each in own] for own in self._classifiers]
        self._server = [
            [r.algorithm.aggregation.start(c) for r, c in zip(own, built, strict=True)]
            for own, built in zip(recipes, self._classifiers, strict=True)
        ]
        self.history: list[list[list[RoundRecord]]] = [[[] for _ in own] for own in recipes]
        self._allocate()

    def _allocate(self) -> None:
        """Make all buffers, which captured graphs refer to."""
        device, models = self._device, len(self._models)
        self._shapes = [tensor.shape for tensor in self.weights[0][0].values()]
        sizes = [shape.numel() for shape in self._shapes]
        starts = models * np.cumsum([0, *sizes[:-1]])
        self._starts = torch.tensor(starts, dtype=torch.int32, device=device)
        self._sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
        self._now, self._origin, self._gradient, self._velocity = (
            Layers(self._shapes, models, device) for _ in range(4)
        )
        terms = [[_coefficients(recipe) for recipe in own] for own in self._recipes]
        self._mu = torch.tensor([terms[s][q][0] for s, q, _ in self._models], device=device)
        contrasts = [q for q in range(self._methods) if any(own[q][1] for own in terms)]
        if len(contrasts) > 1:
            raise ValueError("one method at most may contrast models")
        self._contrasting = contrasts[0] if contrasts else None
        if self._contrasting is not None:
            q = self._contrasting
            self._contrast = torch.tensor([terms[deal.scene][q][1] for deal in self._deals], device=device)
            self._temperature = terms[0][q][2]
            # Received and remembered weights of each deal's model, in turn.
            self._fixed = Layers(self._shapes, 2 * len(self._deals), device)
            self._strength = torch.zeros(len(self._deals), device=device)
        steps = self._deals[0].steps
        self._order = torch.full((steps, len(self._deals), self._batch), -1, dtype=torch.int32, device=device)
        self._step = torch.zeros(1, dtype=torch.int32, device=device)
        self._loss = torch.zeros(models, device=device)
        self._maps = torch.empty(models, self._batch, 1176, device=device)
        self._largest = torch.empty(models, self._batch, 1176, dtype=torch.uint8, device=device)
        self._convolved = torch.empty(models, self._batch, _CONVOLVED, device=device)
        self._largest2 = torch.empty(models, self._batch, _CONVOLVED, dtype=torch.uint8, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def train(self, rounds: int, progress: Callable[[int], None] | None = None) -> None:
        """Run so many rounds more."""
        done = len(self.history[0][0])
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(self._drawn, done)
            for index in range(done, done + rounds):
                began = time.perf_counter()
                order = coming.result()
                if index + 1 < done + rounds:
                    coming = ahead.submit(self._drawn, index + 1)
                self._round(index, order)
                runs = self._methods * len(self._scenes)
                self._evaluated((time.perf_counter() - began) / runs)
                if progress is not None:
                    progress(index + 1)

    def trained(self) -> Iterator[tuple[int, int, Trained]]:
        """Return each scene's and method's run."""
        for s, own in enumerate(self._recipes):
            for q, recipe in enumerate(own):
                classifier: Classifier = self._classifiers[s][q]
                classifier.load_state_dict(self.weights[s][q], strict=False)
                yield s, q, Trained(classifier.eval(), tuple(self.history[s][q]), recipe)

    def _drawn(self, index: int) -> Tensor:
        """Draw all members' batches and augmentation as `LocalTrainer` does."""
        order = np.full((self._deals[0].steps, len(self._deals), self._batch), -1, np.int32)
        for d, deal in enumerate(self._deals):
            recipe = self._recipes[deal.scene][0]
            with torch_seeded(recipe.seed, Stream.LOCAL_TRAINING, index, deal.member):
                step = 0
                for _ in range(recipe.local_epochs):
                    packed = deal.rows + (4 << 20) + (4 << 24)
                    if recipe.augment:
                        top, left, mirrored = draw_moves(len(deal.rows)).T
                        packed = deal.rows + (top << 20) + (left << 24) + (mirrored << 28)
                    for rows in shuffle_batches(len(deal.rows), recipe.batch_size):
                        order[step, d, : len(rows)] = packed[rows].numpy()
                        step += 1
        return torch.from_numpy(order)

    def _round(self, index: int, order: Tensor) -> None:
        self._receive()
        if self._contrasting is not None:
            q = self._contrasting
            for fixed, received, trained in zip(
                self._fixed.each, self._origin.each, self._now.each, strict=True
            ):
                fixed[0::2].copy_(received[q :: self._methods])
                fixed[1::2].copy_(trained[q :: self._methods])
            self._strength.copy_(self._contrast if index else torch.zeros_like(self._contrast))
        self._now.flat.copy_(self._origin.flat)
        for buffer in (self._velocity.flat, self._loss, self._step):
            buffer.zero_()
        self._order.copy_(order)
        lr = self._recipe.lr_at(index)
        steps = [deal.steps for deal in self._deals]
        done = 0
        for active in range(len(steps), 0, -1):
            for _ in range(steps[active - 1] - done):
                self._stepped(active, lr)
            done = max(done, steps[active - 1])
        self._aggregate(index, lr)

    def _receive(self) -> None:
        every = [
            torch.stack([torch.stack([state[name] for state in own]) for own in self.weights])
            for name in self.weights[0][0]
        ]
        scene = torch.tensor([s for s, _, _ in self._models])
        method = torch.tensor([q for _, q, _ in self._models])
        for layer, all_runs in zip(self._origin.each, every, strict=True):
            layer.copy_(all_runs[scene, method])

    def _stepped(self, active: int, lr: float) -> None:
        """Take a step of the first `active` deals' models; on a GPU by a graph for each number."""
        if self._device.type == "cpu":
            self._compute(active, lr)
            return
        if active not in self._graphs:
            self._captured(active, lr)
        self._graphs[active].replay()

    def _captured(self, active: int, lr: float) -> None:
        kept = [buffer.clone() for buffer in (self._now.flat, self._velocity.flat, self._loss, self._step)]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._compute(active, lr)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._compute(active, lr)
        for buffer, before in zip(
            (self._now.flat, self._velocity.flat, self._loss, self._step), kept, strict=True
        ):
            buffer.copy_(before)
        self._graphs[active] = graph

    def _convolve(
        self, layers: Sequence[Tensor], order: Tensor, models: int, deals: int, per_deal: int,
        kept: Sequence[Tensor | None], found: Tensor, images: Tensor | None = None, step: Tensor | None = None,
    ) -> None:  # fmt: skip
        maps, largest, largest2 = kept
        self._kernel(
            "convolve", (order.shape[-1], models), 0,
            self._images if images is None else images, order, self._step if step is None else step,
            self._moments, *layers[:4], maps, largest, found, largest2, deals, per_deal,
        )  # fmt: skip

    @torch.no_grad()
    def _compute(self, active: int, lr: float) -> None:
        models, deals, per_deal = active * self._methods, len(self._deals), self._methods
        now = [layer[:models] for layer in self._now.each]
        gradient = [layer[:models] for layer in self._gradient.each]
        order = self._order.index_select(0, self._step.long())[0, :active]
        valid = order >= 0
        y = self._labels[(order & 0xFFFFF).long().clamp(max=len(self._labels) - 1)]
        share = valid / valid.sum(dim=1, keepdim=True)
        self._convolve(
            self._now.each, self._order, models, deals, per_deal,
            (self._maps, self._largest, self._largest2), self._convolved,
        )  # fmt: skip
        seen = _forward(now, self._convolved[:models])
        logits, z = seen[-1], seen[-2]
        # Cross-entropy's mean over each batch, and its slope.
        y, share = (each.repeat_interleave(per_deal, dim=0) for each in (y, share))
        log_p = logits.log_softmax(dim=2)
        self._loss[:models] -= (log_p.gather(2, y[..., None])[..., 0] * share).sum(dim=1)
        slope = (
            log_p.exp_()
            .scatter_add_(2, y[..., None], -torch.ones_like(share)[..., None])
            .mul_(share[..., None])
        )
        extra = self._contrast_slope(active, z, share) if self._contrasting is not None else None
        for layer in range(len(seen) - 2, -1, -1):
            weight, into = now[4 + 2 * layer], gradient[4 + 2 * layer : 6 + 2 * layer]
            torch.bmm(slope.transpose(1, 2), seen[layer], out=into[0])
            torch.sum(slope, dim=1, out=into[1])
            slope = torch.bmm(slope, weight)
            if layer == len(seen) - 2 and extra is not None:
                slope[self._contrasting :: self._methods] += extra
            if 0 < layer < len(seen) - 2:
                slope = torch.ops.aten.threshold_backward(slope, seen[layer], 0)
        pieces = 16 if models > 64 else 32  # blocks a model, enough to fill a GPU
        parts = torch.empty(models, pieces, 2872, device=self._device)
        self._kernel(
            "slopes", (pieces, models), _SHARED_BYTES,
            self._images, self._order, self._step, self._moments, self._now.each[2], self._maps, self._largest,
            self._convolved, self._largest2, slope, parts, deals, per_deal, self._batch,
        )  # fmt: skip
        sums = torch.split(parts.sum(dim=1), [450, 6, 2400, 16], dim=1)
        torch._foreach_copy_(
            gradient[:4], [part.reshape(into.shape) for part, into in zip(sums, gradient, strict=False)]
        )
        self._kernel(
            "descend", (1024, len(self._shapes)), 0,
            self._now.flat, self._gradient.flat, self._velocity.flat, self._origin.flat, self._mu, self._starts, self._sizes,
            models, lr, self._recipe.momentum, self._recipe.weight_decay,
        )  # fmt: skip
        self._step += 1

    def _contrast_slope(self, active: int, z: Tensor, share: Tensor) -> Tensor:
        """The slope of MOON's penalty at its models' features."""
        fixed = [layer[: 2 * active] for layer in self._fixed.each]
        found = torch.empty(2 * active, self._batch, _CONVOLVED, device=self._device)
        self._convolve(self._fixed.each, self._order, 2 * active, len(self._deals), 2, (None,) * 3, found)
        there = _forward(fixed, found)[-2]
        own = slice(self._contrasting, None, self._methods)
        with torch.enable_grad():
            leaf = z[own].detach().requires_grad_()
            near = functional.cosine_similarity(leaf, there[0::2], dim=2)
            far = functional.cosine_similarity(leaf, there[1::2], dim=2)
            each = functional.softplus((far - near) / self._temperature) * share[own]
            (slope,) = torch.autograd.grad((self._strength[:active, None] * each).sum(), leaf)
        return slope

    def _aggregate(self, index: int, lr: float) -> None:
        home = [layer.cpu() for layer in self._now.each]
        losses = self._loss.cpu()
        names = list(self.weights[0][0])
        for s, own in enumerate(self._recipes):
            partition = self._scenes[s].partition
            place = {deal.member: d for d, deal in enumerate(self._deals) if deal.scene == s}
            for q, recipe in enumerate(own):
                updates = []
                for k, rows in enumerate(partition.members):
                    m = place[k] * self._methods + q
                    state = {name: layer[m] for name, layer in zip(names, home, strict=True)}
                    steps = self._deals[place[k]].steps
                    updates.append(Update(state, len(rows), steps, float(losses[m]) / steps))
                round_ = TrainingRound(index, lr, len(updates), recipe.momentum, int(partition.sizes.sum()))
                self.weights[s][q], self._server[s][q] = recipe.algorithm.combine(
                    self.weights[s][q], updates, self._server[s][q], round_
                )
                local = float(np.average([u.loss for u in updates], weights=[u.records for u in updates]))
                sent = sum(tensor.nbytes for tensor in updates[0].weights.values())
                # `_evaluated` fills in the rest.
                self.history[s][q].append(
                    RoundRecord(index + 1, recipe.rounds, lr, local, nan, nan, 0.0, sent)
                )

    @torch.no_grad()
    def _evaluated(self, seconds: float) -> None:
        """Add the new global models' loss and accuracy on the test records to the history."""
        runs = [(s, q) for s, own in enumerate(self._recipes) for q in range(len(own))]
        layers = Layers(self._shapes, len(runs), self._device)
        stacked = [torch.stack([self.weights[s][q][name] for s, q in runs]) for name in self.weights[0][0]]
        for layer, values in zip(layers.each, stacked, strict=True):
            layer.copy_(values)
        count = len(self._test_labels)
        order = torch.arange(count, dtype=torch.int32, device=self._device) + ((4 << 20) + (4 << 24))
        found = torch.empty(len(runs), count, _CONVOLVED, device=self._device)
        zero = torch.zeros(1, dtype=torch.int32, device=self._device)
        self._convolve(
            layers.each,
            order[None, None],
            len(runs),
            1,
            len(runs),
            (None,) * 3,
            found,
            self._test_images,
            zero,
        )
        logits = _forward(layers.each, found)[-1]
        losses = [float(functional.cross_entropy(each, self._test_labels)) for each in logits]
        hits = (logits.argmax(dim=2) == self._test_labels).float().mean(dim=1).tolist()
        for (s, q), loss, hit in zip(runs, losses, hits, strict=True):
            last = self.history[s][q][-1]
            self.history[s][q][-1] = replace(last, test_loss=loss, accuracy=hit, seconds=seconds)


def _forward(layers: Sequence[Tensor], convolved: Tensor) -> list[Tensor]:
    """Return each fully connected layer's input, the features (the head's input), and the logits."""
    seen = [convolved]
    pairs = list(zip(layers[4::2], layers[5::2], strict=True))
    for i, (weight, bias) in enumerate(pairs):
        out = torch.baddbmm(bias[:, None], seen[-1], weight.transpose(1, 2))
        seen.append(out.relu_() if i < len(pairs) - 2 else out)
    return seen


def _coefficients(recipe: Recipe) -> tuple[float, float, float]:
    """Return μ of FedProx, and μ and τ of MOON. Raises ValueError for other terms."""
    proximal, contrast, temperature = 0.0, 0.0, 1.0
    for term in recipe.algorithm.terms:
        if isinstance(term, Proximal) and term.over == "all":
            proximal = term.mu
        elif isinstance(term, ModelContrastive):
            contrast, temperature = term.mu, term.temperature
        else:
            raise ValueError(f"{type(term).__name__} is not stacked")
    return proximal, contrast, temperature


def _copied(state: State) -> State:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
