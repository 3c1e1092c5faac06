"""An experiment as one value: every choice that, with the data and the partition, fixes the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import cos, pi
from typing import Any, Protocol, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm, trained_parameters
from training.algorithms.weights import HeadFirst
from training.heads import Classifier, LearnedHead, orthonormal_head
from training.models.architectures import build_extractor
from training.models.config import ExtractorConfig
from training.ranges import below_one, check_positive, not_negative
from training.seeding import Stream, torch_seeded

HeadFactory: TypeAlias = Callable[[int, int], nn.Linear]
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Of logits (n, C) and labels (n,): a scalar, the mean over the batch."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """−log softmax(Wz)_y."""
    return functional.cross_entropy(logits, labels)


def mean_squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """SphereFed's 1/C · ‖Wz − onehot(y)‖² (Dong et al. 2022, eq. 5)."""
    targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return functional.mse_loss(logits, targets)


def positive_hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """FedAwS's max(0, 0.9 − w_yᵀz)² of cosines; the other classes' vectors do not appear (Yu et al. 2020, eq. 4)."""
    own = logits.gather(1, labels[:, None])
    return (0.9 - own).clamp(min=0).square().mean()


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "mean-squared-error": mean_squared_error,
    "positive-hinge": positive_hinge,
}


class Schedule(Protocol):
    """How the members' learning rate changes from round to round."""

    def factor(self, round_: int, rounds: int) -> float:
        """Return the factor of η in round t = 0..R−1."""


@dataclass(frozen=True)
class Constant:
    """η in every round."""

    def factor(self, round_: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """½(1 + cos(πt/R)): from η down, never quite to zero (Dong et al. 2022, §5.1)."""

    def factor(self, round_: int, rounds: int) -> float:
        return (1 + cos(pi * round_ / rounds)) / 2


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """Times γ at each milestone (Dong et al. 2022, appendix A.3).

    Milestones are rounds, from 0.
    """

    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_positive(gamma=self.gamma)
        not_negative(milestones=min(self.milestones, default=0))

    def factor(self, round_: int, rounds: int) -> float:
        return self.gamma ** sum(round_ >= milestone for milestone in self.milestones)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Head, loss, normalisation and algorithm are separate choices that combine freely.

    Attributes:
        model: the feature extractor.
        head: makes the head from (l, C).
        normalise: whether the head sees z/‖z‖.
        loss: of logits and labels.
        algorithm: terms at the members, aggregation at the server.
        rounds: R ≥ 1.
        local_epochs: E ≥ 1, a member's passes over its records in a round.
        batch_size: B ≥ 1.
        lr: η > 0, of the members' SGD in round 0.
        momentum: ρ in [0, 1); members start each round at rest.
        weight_decay: the L2 penalty of the members' SGD.
        schedule: how η changes from round to round.
        augment: whether members crop and mirror their images.
        participation: the share of members in a round, in (0, 1]; at least one member.
        calibrate_every: replace a fixed head by FFC's solution each time so many rounds have passed (Dong et al. 2022, appendix C);
            None keeps the head.
        seed: of the initial weights, the participants and the batches.

    Raises:
        ValueError: if a number is out of its range.
    """

    model: ExtractorConfig
    head: HeadFactory = LearnedHead
    normalise: bool = False
    loss: Loss = cross_entropy
    algorithm: Algorithm = field(default_factory=lambda: Algorithm(FedAvg()))
    rounds: int = 100
    local_epochs: int = 10
    batch_size: int = 64
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-5
    schedule: Schedule = field(default_factory=Cosine)
    augment: bool = False
    participation: float = 1.0
    calibrate_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(
            rounds=self.rounds, local_epochs=self.local_epochs, batch_size=self.batch_size, lr=self.lr
        )
        below_one(momentum=self.momentum)
        not_negative(weight_decay=self.weight_decay)
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must lie in (0, 1], not {self.participation}")
        if self.calibrate_every is not None and self.calibrate_every < 1:
            raise ValueError(
                f"calibrate_every must be a number of rounds, 1 or more, not {self.calibrate_every}"
            )
        for term in self.algorithm.terms:
            if isinstance(term, HeadFirst) and not 0 < term.head_epochs < self.local_epochs:
                raise ValueError(
                    f"FedRep trains its head in some of the {self.local_epochs} local epochs and the extractor in "
                    f"the others: head_epochs must lie between, not {term.head_epochs}"
                )

    def lr_at(self, round_: int) -> float:
        """Return the learning rate of round t = 0..R−1."""
        return self.lr * self.schedule.factor(round_, self.rounds)

    def trains(self, name: str, epoch: int) -> bool:
        """Return whether the weights of this name are trained in a local epoch, from 0."""
        return all(term.trains(name, epoch) for term in self.algorithm.terms)

    def calibrates_after(self, round_: int) -> bool:
        """Return whether the head is calibrated at the end of round t = 0..R−1."""
        return self.calibrate_every is not None and (round_ + 1) % self.calibrate_every == 0

    def build(self, classes: int) -> Classifier:
        """Build the initial classifier, the same for every run of the recipe.

        Raises:
            ValueError: if the head cannot be made, or does not suit `calibrate_every`, the algorithm or the loss.
        """
        with torch_seeded(self.seed, Stream.INITIALISATION):
            extractor = build_extractor(self.model)
            classifier = Classifier(extractor, self.head(extractor.dim, classes), normalise=self.normalise)
        if self.augment and len(self.model.shape) != 3:
            raise ValueError(f"augment crops and mirrors images, not inputs of shape {self.model.shape}")
        if self.calibrate_every is not None and not classifier.calibrates:
            raise ValueError(
                "calibrate_every replaces a fixed head without a bias, on features of norm one, by FFC's solution: "
                "take such a head and normalise, or calibrate once, after training"
            )
        if self.loss is positive_hinge and not classifier.gives_cosines:
            raise ValueError(
                "positive-hinge is a loss of cosines, that longer features or class vectors make small: normalise, and take the head "
                '"normalised", or a fixed one of vectors of length 1'
            )
        for epoch in range(self.local_epochs):
            if not any(self.trains(name, epoch) for name in trained_parameters(classifier)):
                raise ValueError(
                    f"nothing is trained in local epoch {epoch + 1}: FedRep's head epochs need a head that is learned"
                )
        return classifier

    def describe(self) -> dict[str, Any]:
        """Return the recipe as JSON-ready data, stored with every result.

        Raises:
            ValueError: if a choice is a lambda, a partial or a closure: their names do not identify them.
        """
        described: dict[str, Any] = _to_plain(self)
        return described


def fedavg_recipe(model: ExtractorConfig, **choices: Any) -> Recipe:
    """Make FedAvg's recipe: a learned head, raw features, cross entropy. `choices` are `Recipe`'s other attributes."""
    return Recipe(model=model, **choices)


def spherefed_recipe(model: ExtractorConfig, **choices: Any) -> Recipe:
    """Make SphereFed's recipe (Dong et al. 2022): fixed orthonormal head, features of norm one, mean squared error.

    `choices` may name another algorithm than FedAvg. The default learning rate is the paper's for MobileNetV2: five times that
    of cross entropy, because this loss has smaller gradients.
    """
    sphere = {"head": orthonormal_head, "normalise": True, "loss": mean_squared_error, "lr": 0.5}
    return Recipe(model=model, **{**sphere, **choices})


def _to_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        plain = {each.name: _to_plain(getattr(value, each.name)) for each in fields(value)}
        return {"kind": _qualified_name(type(value)), **plain}
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return _name_of(value) if callable(value) else value


def _name_of(choice: Any) -> str:
    name = getattr(choice, "__name__", "<lambda>")
    if name == "<lambda>" or getattr(choice, "__closure__", None):
        raise ValueError(
            f"a recipe's choices are recorded by name, and {choice!r} has no name that identifies it: use a function of a module, "
            "or a callable frozen dataclass"
        )
    return _qualified_name(choice)


def _qualified_name(choice: Any) -> str:
    """Return a name, with its module if that is not one of ours."""
    ours = choice.__module__.startswith("training.")
    return str(choice.__name__ if ours else f"{choice.__module__}:{choice.__qualname__}")
