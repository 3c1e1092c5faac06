"""Terms that hold features against those of other models: MOON (Li et al. 2021), FedMMD (Yao et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from training.algorithms.base import Term
from training.ranges import not_negative, positive

if TYPE_CHECKING:
    from torch import Tensor

    from training.algorithms.base import Batch, Site, State

_AT_ONCE = 512


@dataclass(frozen=True)
class ModelContrastive(Term):
    """μ times MOON's contrast (Li et al. 2021, eq. 3 and 4).

    −log e^{cos(z, z_g)/τ} / (e^{cos(z, z_g)/τ} + e^{cos(z, z_p)/τ}), with z_g from the received model and z_p from the
    member's own of when it last took part. A member that never did has none: z_p = z_g then, which has no gradient.

    Attributes:
        mu: μ ≥ 0.
        temperature: τ > 0.
    """

    mu: float = 1.0
    temperature: float = 0.5

    def __post_init__(self) -> None:
        not_negative(mu=self.mu)
        positive(temperature=self.temperature)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """The mean over the batch."""
        if not site.memory:
            return 0.0
        near = functional.cosine_similarity(batch.z, _under(site.received, "received", batch, site))
        far = functional.cosine_similarity(batch.z, _under(site.memory, "remembered", batch, site))
        return self.mu * functional.softplus((far - near) / self.temperature).mean()

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        """No message; the memory is the extractor as it is now."""
        del steps
        shared = site.model.shared_weights().items()
        return {}, {name: tensor.clone() for name, tensor in shared if name.startswith("extractor.")}


@dataclass(frozen=True)
class FeatureDiscrepancy(Term):
    """λ·MMD² between the batch's features under the model in training and under the received one (Yao et al. 2018, eq. 5).

    The kernel is the mean of Gaussians whose squared widths are 2^(−2…2) times the mean squared distance in the batch
    (Gretton et al. 2012; Long et al. 2015, §4.1).

    Attributes:
        weight: λ ≥ 0.
    """

    weight: float = 0.1

    def __post_init__(self) -> None:
        not_negative(weight=self.weight)

    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        """λ·MMD² of the batch."""
        return self.weight * squared_mmd(batch.z, _under(site.received, "received", batch, site))


def _under(weights: State, name: str, batch: Batch, site: Site) -> Tensor:
    """The batch's features under fixed weights: of records that augmentation leaves alone, computed once a round."""
    if batch.rows is None:
        return site.model.features_under(weights, batch.x)
    if name not in site.once:
        parts = torch.split(site.records.x, _AT_ONCE)
        site.once[name] = torch.cat([site.model.features_under(weights, part) for part in parts])
    return site.once[name][batch.rows]


def squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """The biased estimate of MMD² between the rows of x (n, l) and y (m, l): never negative, 0 for equal sets."""
    both = torch.cat([x, y])
    distances = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = distances.detach().mean().clamp(min=torch.finfo(x.dtype).tiny)
    kernel = torch.stack([(-distances / (scale * 2.0**power)).exp() for power in range(-2, 3)]).mean(dim=0)
    n = len(x)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()
