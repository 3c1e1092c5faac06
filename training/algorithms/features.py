"""Terms on features and logits: MOON, FedMMD, FedUV, FedRS, GMV."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.algorithms.base import Batch, Site, State, Term, TrainingRound
from training.heads import Classifier
from training.ranges import check_fraction, check_positive, not_negative

_FEATURE_BATCH = 512
_NORM_MIN = 1e-12
_WARMUP_ROUNDS = 50
"""GMV collects vectors from so many rounds before the first that uses them: by then each class was seen even if one in ten takes part."""


@dataclass(frozen=True)
class ModelContrastive(Term):
    """μ times MOON's contrast (Li et al. 2021, eq. 3 and 4).

    −log e^{cos(z, z_g)/τ} / (e^{cos(z, z_g)/τ} + e^{cos(z, z_p)/τ}), with z_g from the received model and z_p from the
    member's model when it last took part. A member's first round has no z_p and no penalty. τ is `temperature`.
    """

    mu: float = 1.0
    temperature: float = 0.5

    def __post_init__(self) -> None:
        not_negative(mu=self.mu)
        check_positive(temperature=self.temperature)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        if not site.memory:
            return 0.0
        near = functional.cosine_similarity(batch.z, _features_under(site.received, "received", batch, site))
        far = functional.cosine_similarity(batch.z, _features_under(site.memory, "remembered", batch, site))
        return self.mu * functional.softplus((far - near) / self.temperature).mean()

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return no message, and the trained extractor as memory."""
        shared = site.model.shared_weights().items()
        return {}, {name: tensor.clone() for name, tensor in shared if name.startswith("extractor.")}


@dataclass(frozen=True)
class FeatureDiscrepancy(Term):
    """FedMMD: λ·MMD² between the batch's features under the model in training and the received one, λ = `weight` (Yao et al. 2018, eq. 5).

    A single record has no penalty: the kernel's width would be its own distance, MMD² a constant, and the gradient rounding.
    """

    weight: float = 0.1

    def __post_init__(self) -> None:
        not_negative(weight=self.weight)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        if len(batch.z) < 2:
            return 0.0
        return self.weight * squared_mmd(batch.z, _features_under(site.received, "received", batch, site))


def _features_under(weights: State, name: str, batch: Batch, site: Site) -> Tensor:
    """Compute the batch's features under fixed weights: once per round, unless augmentation changes the records."""
    if batch.rows is None:
        return site.model.features_under(weights, batch.x)
    if name not in site.once:
        parts = torch.split(site.records.x, _FEATURE_BATCH)
        site.once[name] = torch.cat([site.model.features_under(weights, part) for part in parts])
    return site.once[name][batch.rows]


def squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """Estimate MMD² between the rows of x (n, l) and y (m, l), biased: never negative, 0 for equal sets.

    The kernel is the mean of Gaussians whose squared widths are 2^(−2…2) times the mean squared distance in the batch
    (Gretton et al. 2012; Long et al. 2015, §4.1).
    """
    both = torch.cat([x, y])
    distances = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = distances.detach().mean().clamp(min=torch.finfo(x.dtype).tiny)
    kernel = torch.stack([(-distances / (scale * 2.0**power)).exp() for power in range(-2, 3)]).mean(dim=0)
    n = len(x)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


@dataclass(frozen=True)
class ClassVariance(Term):
    """FedUV's λ·L_V on the logits, λ = `weight`, or the paper's C/4 if that is None (Son et al. 2024)."""

    weight: float | None = None

    def __post_init__(self) -> None:
        not_negative(weight=self.weight or 0.0)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        weight = batch.logits.shape[1] / 4 if self.weight is None else self.weight
        return weight * variance_loss(batch.logits)


def variance_loss(logits: Tensor) -> Tensor:
    """L_V = 1/C Σ_c max(0, 1/√C − std(P_c)) for logits of shape (n, C), P their softmax (Son et al. 2024, eq. 2 and 3).

    1/√C is the standard deviation, over n − 1, of a column of the identity: that of a batch with one record per class and perfect
    predictions. The loss of a single record is zero.
    """
    records, classes = logits.shape
    if records < 2:
        return logits.new_zeros(())
    # Without the tiny addend, a constant column has an infinite slope.
    deviation = (logits.softmax(dim=1).var(dim=0) + _NORM_MIN).sqrt()
    missing: Tensor = classes**-0.5 - deviation
    return missing.clamp(min=0).mean()


@dataclass(frozen=True)
class Uniformity(Term):
    """FedUV's μ·L_U on the features, μ = `weight` (Son et al. 2024)."""

    weight: float = 0.5

    def __post_init__(self) -> None:
        not_negative(weight=self.weight)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        return self.weight * uniformity_loss(batch.z)


def uniformity_loss(z: Tensor) -> Tensor:
    """L_U = E exp(−‖x − y‖²/(2σ)) over pairs of rows of z (n, l), σ the median of ‖x − y‖² (Son et al. 2024, eq. 4).

    σ is a constant of the batch, without a gradient. The loss of a single record is zero.
    """
    if len(z) < 2:
        return z.new_zeros(())
    squares = functional.pdist(z).square()
    sigma = squares.detach().median().clamp(min=_NORM_MIN)
    return (-squares / (2 * sigma)).exp().mean()


@dataclass(frozen=True)
class RestrictedSoftmax(Term):
    """FedRS: scale the logits of classes that the member does not hold by α (Li and Zhan 2021, eq. 6 and 7).

    Otherwise the member's records would only push these classes' vectors away. α = 1 is no restriction.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        check_fraction(alpha=self.alpha)

    def logits(self, logits: Tensor, y: Tensor, site: Site) -> Tensor:
        return logits * torch.where(site.label_counts > 0, 1.0, self.alpha)


@dataclass(frozen=True)
class GlobalMemory(Term):
    """GMV: from round R_warm on the head sees f + αμ_y in training (Huang et al. 2023, Algorithm 1), and f alone in use.

    μ_c is the mean, over the last round's participants that hold class c, of their mean features of c. A class that none of them
    holds keeps its vector, so that vectors stay as long as features. (Algorithm 1 divides otherwise: `PrintedMemory`.) Each
    participant sends its C means and which classes it holds; both add up over members. The paper computes them from the
    first round on; here that begins `_WARMUP_ROUNDS` rounds before they are used.

    Attributes:
        alpha: α ≥ 0.
        warmup: R_warm, the first round that adds vectors, counted from 1 as in the paper; 0 is the same as 1.
    """

    alpha: float = 1.0
    warmup: int = 0

    def __post_init__(self) -> None:
        not_negative(alpha=self.alpha, warmup=self.warmup)

    def start(self, model: Classifier) -> State:
        return {"means": torch.zeros(model.head.out_features, model.extractor.dim)}

    def features(self, z: Tensor, y: Tensor, site: Site) -> Tensor:
        if site.round.index + 1 < self.warmup:
            return z
        return z + self.alpha * site.broadcast["means"][y]

    @torch.no_grad()
    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """Return the member's means, (C, l), and its classes, (C,)."""
        if self._is_early(site.round):
            return {}, {}
        training = site.model.training
        site.model.eval()
        z = torch.cat([site.model.features(part) for part in torch.split(site.records.x, _FEATURE_BATCH)])
        site.model.train(training)
        means = torch.zeros_like(site.broadcast["means"]).index_add_(0, site.records.y, z)
        held = site.label_counts > 0
        means /= site.label_counts.clamp(min=1)[:, None]
        return {"means": means, "holders": held.to(z.dtype)}, {}

    def reduce(self, broadcast: State, messages: Sequence[State], round_: TrainingRound) -> State:
        if self._is_early(round_):
            return broadcast
        total = torch.stack([message["means"] for message in messages]).sum(dim=0)
        holders = torch.stack([message["holders"] for message in messages]).sum(dim=0)
        means = broadcast["means"].clone()
        held = holders > 0
        means[held] = total[held] / holders[held, None]
        return {"means": means}

    def _is_early(self, round_: TrainingRound) -> bool:
        return round_.index + 1 < self.warmup - _WARMUP_ROUNDS


@dataclass(frozen=True)
class PrintedMemory(GlobalMemory):
    """μ_c = 1/|S_t| Σ_k (k's mean feature of c), over all participants as Huang et al. 2023 print it (Algorithm 1).

    A participant without the class adds 0: μ_c is the holders' mean times their share, and 0 if no participant holds c.
    """

    def reduce(self, broadcast: State, messages: Sequence[State], round_: TrainingRound) -> State:
        if self._is_early(round_):
            return broadcast
        return {"means": torch.stack([message["means"] for message in messages]).mean(dim=0)}
