"""Classifier heads, and the classifier that puts one on a feature extractor.

Whatever makes a head from (l, C) is a factory: `LearnedHead`, `orthonormal_head`, `Simplex(scale=1.5)`. The random ones draw
from torch's generator, so whoever knows the seed has the head, and a fixed head is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from training.ranges import not_negative, positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from training.models import Extractor


class LearnedHead(nn.Linear):
    """The usual linear head, trained and averaged with the rest: logits Wz + b, with W of shape (C, l); or no b."""

    def __init__(self, dim: int, classes: int, *, bias: bool = True) -> None:
        super().__init__(dim, classes, bias=bias)


class NormalisedHead(nn.Linear):
    """clsnorm: a learned head whose class vectors count by their direction, logits w_cᵀz/‖w_c‖ (Luo et al. 2021, §3.3)."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__(dim, classes, bias=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        """The logits, of shape (n, C), of features of shape (n, l)."""
        return functional.linear(input, functional.normalize(self.weight, dim=1))


class FixedHead(nn.Linear):
    """A linear head that training leaves as it is, so that no round has to send it.

    Args:
        weight: W of shape (C, l), one row a class.
        bias: b of shape (C,), or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        classes, dim = weight.shape
        super().__init__(dim, classes, bias=bias is not None)
        self.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        self.requires_grad_(requires_grad=False)


def unbiased_head(dim: int, classes: int) -> LearnedHead:
    """A learned head without a bias, as SphereFed's tables of models end (Dong et al. 2022, Tables 11 to 15)."""
    return LearnedHead(dim, classes, bias=False)


def uniform_head(dim: int, classes: int) -> FixedHead:
    """Each weight from U(−1/√l, 1/√l), torch's own for a layer: BABU in SphereFed's tables (§5.3), and Freeze in FedUV's."""
    return FixedHead(torch.empty(classes, dim).uniform_(-(dim**-0.5), dim**-0.5))


def random_head(dim: int, classes: int) -> FixedHead:
    """FedBABU's: each weight from N(0, 2/l), as He et al. 2015, eq. 10, initialise (Oh et al. 2022)."""
    return FixedHead(torch.randn(classes, dim) * (2 / dim) ** 0.5)


def orthonormal_head(dim: int, classes: int) -> FixedHead:
    """SphereFed's head: C orthonormal rows of length l from a QR decomposition (Dong et al. 2022, eq. 4).

    Q of a Gaussian matrix, with the signs of R's diagonal moved into Q, is uniform over the orthonormal
    frames.

    Raises:
        ValueError: if l < C, for then C orthonormal rows do not exist.
    """
    return FixedHead(_orthonormal_columns(dim, classes).T.float())


@dataclass(frozen=True)
class Orthonormal:
    """`orthonormal_head` times τ, without which a cross-entropy on features of norm one tells classes little apart (§4.2).

    Attributes:
        scale: τ > 0.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive(scale=self.scale)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        """The head for features of length l; ValueError if l < C."""
        return FixedHead(self.scale * orthonormal_head(dim, classes).weight.detach())


@dataclass(frozen=True)
class Simplex:
    """FedETF's head: the columns of β√(C/(C−1))·P(I − 11ᵀ/C), PᵀP = I (Huang et al. 2023, eq. 3).

    All class vectors have length β, and any two the cosine −1/(C−1), the least that C vectors can share.

    Attributes:
        scale: β > 0.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive(scale=self.scale)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        """The head for features of length l.

        Raises:
            ValueError: if l < C: P would not exist; or C < 2.
        """
        if classes < 2:
            raise ValueError(f"a simplex needs two classes at the least, not {classes}")
        centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
        frame = (classes / (classes - 1)) ** 0.5 * _orthonormal_columns(dim, classes) @ centred
        return FixedHead((self.scale * frame).T.float())


@dataclass(frozen=True)
class Tammes:
    """Class vectors of length 1 pushed apart by SGD on each one's largest cosine (Mettes et al. 2019, eq. 5).

    Where l ≥ C − 1 the best there is is a simplex; below that no closed form is known.

    Attributes:
        steps: ≥ 0, of gradient descent with momentum 0.9.
        lr: η > 0, its rate.
    """

    steps: int = 1000
    lr: float = 0.1

    def __post_init__(self) -> None:
        not_negative(steps=self.steps)
        positive(lr=self.lr)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        """The head for features of length l."""
        vectors = functional.normalize(torch.randn(classes, dim), dim=1).requires_grad_()
        optimiser = torch.optim.SGD([vectors], lr=self.lr, momentum=0.9)
        own = torch.eye(classes, dtype=torch.bool)
        for _ in range(self.steps if classes > 1 else 0):
            unit = functional.normalize(vectors, dim=1)
            nearest = (unit @ unit.T).masked_fill(own, -torch.inf).amax(dim=1).mean()
            optimiser.zero_grad()
            nearest.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            optimiser.step()
        return FixedHead(functional.normalize(vectors.detach(), dim=1))


class Classifier(nn.Module):
    """A head on an extractor.

    Args:
        extractor: maps x of shape (n, ...) to features of shape (n, l).
        head: maps features to logits of shape (n, C).
        normalise: whether features are scaled to ‖z‖ = 1 first (Dong et al. 2022, §4.1).
    """

    def __init__(self, extractor: Extractor, head: nn.Linear, *, normalise: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head
        self.normalise = normalise

    @property
    def calibrates(self) -> bool:
        """Whether FFC's solution fits in the head's place between rounds: no round trains it, it has no bias, and sees ‖z‖ = 1."""
        unbiased = "bias" not in self.head.state_dict()
        return isinstance(self.head, FixedHead) and unbiased and self.normalise

    @property
    def gives_cosines(self) -> bool:
        """Whether a logit is the cosine of a feature and its class's vector: ‖z‖ = 1 and ‖w_c‖ = 1, without a bias."""
        if not self.normalise or "bias" in self.head.state_dict():
            return False
        if not isinstance(self.head, FixedHead):
            return isinstance(self.head, NormalisedHead)
        lengths = self.head.weight.norm(dim=1)
        return torch.allclose(lengths, torch.ones_like(lengths), rtol=0, atol=1e-4)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees: z of shape (n, l), of norm one where `normalise` is set."""
        return self._scaled(self.extractor(x))

    @torch.no_grad()
    def features_under(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The features of x that the extractor would give with these weights, in use and not in training.

        Args:
            weights: by their names in this classifier; those that it names otherwise are passed over.
            x: of shape (n, ...).
        """
        own = {
            name.removeprefix("extractor."): t for name, t in weights.items() if name.startswith("extractor.")
        }
        training = self.extractor.training
        self.extractor.eval()  # batch normalisation would else write into the weights given
        z = self._scaled(torch.func.functional_call(self.extractor, own, (x,)))
        self.extractor.train(training)
        return z

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, C)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def shared_weights(self) -> dict[str, Tensor]:
        """The tensors that a round sends: all that training changes, buffers included, and no fixed head.

        They are the model's own tensors, not copies.
        """
        trained = {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}
        kept = self.state_dict().keys()  # buffers that are no state belong to the architecture
        return trained | {name: tensor for name, tensor in self.named_buffers() if name in kept}

    def _scaled(self, z: Tensor) -> Tensor:
        return functional.normalize(z, dim=1) if self.normalise else z


def _orthonormal_columns(dim: int, classes: int) -> Tensor:
    if dim < classes:
        raise ValueError(
            f"{classes} classes need {classes} orthonormal rows, which features of dimension {dim} don't have; "
            f"choose an extractor with dim >= {classes}"
        )
    q, r = torch.linalg.qr(torch.randn(dim, classes, dtype=torch.float64))
    columns: Tensor = q * r.diagonal().sign()
    return columns
