"""Classifier heads, and the classifier that puts one on a feature extractor.

A head factory makes a head from (l, C): `LearnedHead`, `orthonormal_head`, `Simplex(scale=1.5)`. Random ones draw
from torch's generator, so the seed determines a fixed head, and it is never sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.layers import Extractor
from training.ranges import check_positive, not_negative


class LearnedHead(nn.Linear):
    """The usual linear head, trained and averaged with the rest: logits Wz + b, with W of shape (C, l)."""

    def __init__(self, dim: int, classes: int, *, bias: bool = True) -> None:
        super().__init__(dim, classes, bias=bias)


class NormalisedHead(nn.Linear):
    """clsnorm: a learned head with normalised class vectors, logits w_cᵀz/‖w_c‖ (Luo et al. 2021, §3.3)."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__(dim, classes, bias=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        return functional.linear(input, functional.normalize(self.weight, dim=1))


class FixedHead(nn.Linear):
    """A linear head that is neither trained nor sent: W of shape (C, l), one row per class, and b of shape (C,), or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        classes, dim = weight.shape
        super().__init__(dim, classes, bias=bias is not None)
        self.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        self.requires_grad_(requires_grad=False)


def unbiased_head(dim: int, classes: int) -> LearnedHead:
    """Make a learned head without bias, as in SphereFed's models (Dong et al. 2022, Tables 11 to 15)."""
    return LearnedHead(dim, classes, bias=False)


def uniform_head(dim: int, classes: int) -> FixedHead:
    """Draw weights from U(−1/√l, 1/√l), torch's default: BABU in SphereFed's tables (§5.3), and Freeze in FedUV's."""
    return FixedHead(torch.empty(classes, dim).uniform_(-(dim**-0.5), dim**-0.5))


def random_head(dim: int, classes: int) -> FixedHead:
    """Draw weights from N(0, 2/l) (He et al. 2015, eq. 10): FedBABU (Oh et al. 2022)."""
    return FixedHead(torch.randn(classes, dim) * (2 / dim) ** 0.5)


def orthonormal_head(dim: int, classes: int) -> FixedHead:
    """Make SphereFed's head: C orthonormal rows of length l (Dong et al. 2022, eq. 4). Raises ValueError if l < C."""
    return FixedHead(_orthonormal_columns(dim, classes).T.float())


@torch.no_grad()
def compute_linear_map(head: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return W of shape (C, l) and b of shape (C,) of a head of any class: its logits are Wz + b."""
    identity = torch.eye(head.in_features, device=head.weight.device)
    constant = head(torch.zeros_like(identity[:1]))
    return (head(identity) - constant).T, constant[0]


@dataclass(frozen=True)
class Orthonormal:
    """`orthonormal_head` times τ > 0: cross-entropy on features of norm one needs a scale (Dong et al. 2022, §4.2)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        """Make the head for features of length l. Raises ValueError if l < C."""
        return FixedHead(self.scale * orthonormal_head(dim, classes).weight.detach())


@dataclass(frozen=True)
class Simplex:
    """FedETF's head: the columns of β√(C/(C−1))·P(I − 11ᵀ/C), PᵀP = I, `scale` β > 0 (Huang et al. 2023, eq. 3).

    All class vectors have length β, and any two the cosine −1/(C−1), the smallest that C vectors can share.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        """Make the head for features of length l. Raises ValueError if l < C or C < 2."""
        if classes < 2:
            raise ValueError(f"a simplex needs at least two classes, not {classes}")
        centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
        frame = (classes / (classes - 1)) ** 0.5 * _orthonormal_columns(dim, classes) @ centred
        return FixedHead((self.scale * frame).T.float())


@dataclass(frozen=True)
class Tammes:
    """Class vectors of length 1 pushed apart by SGD on each one's largest cosine (Mettes et al. 2019, eq. 5).

    For l ≥ C − 1 the optimum is a simplex; below that no closed form is known. SGD takes `steps` with momentum 0.9.
    """

    steps: int = 1000
    lr: float = 0.1

    def __post_init__(self) -> None:
        not_negative(steps=self.steps)
        check_positive(lr=self.lr)

    def __call__(self, dim: int, classes: int) -> FixedHead:
        vectors = functional.normalize(torch.randn(classes, dim), dim=1).requires_grad_()
        velocity = torch.zeros_like(vectors, requires_grad=False)
        own = torch.eye(classes, dtype=torch.bool)
        for _ in range(self.steps if classes > 1 else 0):
            unit = functional.normalize(vectors, dim=1)
            nearest = (unit @ unit.T).masked_fill(own, -torch.inf).amax(dim=1).mean()
            (gradient,) = torch.autograd.grad(nearest, vectors)
            velocity.mul_(0.9).add_(gradient)
            with torch.no_grad():
                vectors.add_(velocity, alpha=-self.lr)
        return FixedHead(functional.normalize(vectors.detach(), dim=1))


class Classifier(nn.Module):
    """A head on an extractor: x of shape (n, ...) to features (n, l), and these to logits (n, C).

    With `normalise`, features are scaled to ‖z‖ = 1 first (Dong et al. 2022, §4.1).
    """

    def __init__(self, extractor: Extractor, head: nn.Linear, *, normalise: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head
        self.normalise = normalise

    @property
    def calibrates(self) -> bool:
        """Whether FFC's solution can replace the head between rounds: it is fixed, without bias, on features of norm one."""
        unbiased = "bias" not in self.head.state_dict()
        return isinstance(self.head, FixedHead) and unbiased and self.normalise

    @property
    def gives_cosines(self) -> bool:
        """Whether logits are cosines: ‖z‖ = 1 and ‖w_c‖ = 1, without bias."""
        if not self.normalise or "bias" in self.head.state_dict():
            return False
        if not isinstance(self.head, FixedHead):
            return isinstance(self.head, NormalisedHead)
        lengths = self.head.weight.norm(dim=1)
        return torch.allclose(lengths, torch.ones_like(lengths), rtol=0, atol=1e-4)

    def features(self, x: Tensor) -> Tensor:
        """Compute what the head sees: z of shape (n, l), of norm one if `normalise` is set."""
        return self._scale_features(self.extractor(x))

    @torch.no_grad()
    def features_under(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Compute features of x with other weights, by their names in this classifier, in evaluation mode."""
        own = {
            name.removeprefix("extractor."): t for name, t in weights.items() if name.startswith("extractor.")
        }
        training = self.extractor.training
        self.extractor.eval()  # in training mode batch normalisation would write into the weights
        z = self._scale_features(torch.func.functional_call(self.extractor, own, (x,)))
        self.extractor.train(training)
        return z

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    def shared_weights(self) -> dict[str, Tensor]:
        """Return the tensors that a round sends: trained weights and buffers, not a fixed head. They are not copies."""
        trained = {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}
        kept = self.state_dict().keys()  # other buffers belong to the architecture
        return trained | {name: tensor for name, tensor in self.named_buffers() if name in kept}

    def _scale_features(self, z: Tensor) -> Tensor:
        return functional.normalize(z, dim=1) if self.normalise else z


def _orthonormal_columns(dim: int, classes: int) -> Tensor:
    if dim < classes:
        raise ValueError(
            f"{classes} classes need {classes} orthonormal rows, which features of dimension {dim} don't have; "
            f"choose an extractor with dim >= {classes}"
        )
    # Q of a Gaussian matrix, with the signs of R's diagonal moved into Q, is uniform over orthonormal frames.
    q, r = torch.linalg.qr(torch.randn(dim, classes, dtype=torch.float64))
    columns: Tensor = q * r.diagonal().sign()
    return columns
