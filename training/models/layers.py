"""The pieces that several architectures share: normalisation, a convolution with it, pooling, projectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

NORMS = ("group", "batch", "none")
_CHANNELS_PER_GROUP, _MOST_GROUPS = 8, 32


class BatchNorm1d(nn.BatchNorm1d):
    """Batch normalisation of vectors that takes a batch of one record by its running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x of shape (n, channels)."""
        return _by_running_statistics(self, x) if self.training and _alone(x) else super().forward(x)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation of maps that takes one single pixel by its running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x of shape (n, channels, height, width)."""
        return _by_running_statistics(self, x) if self.training and _alone(x) else super().forward(x)


def normalisation(norm: str, channels: int) -> nn.Module:
    """The layer that follows a convolution of `channels` outputs.

    "group" is the default everywhere: batch statistics of one member's few classes are no statistics of the
    federation (Hsieh et al. 2020). Groups hold eight channels or more, and there are 32 of them at the most (Wu and
    He 2018), so that a map of one pixel keeps something to normalise by.

    Raises:
        ValueError: if `norm` is none of `NORMS`.
    """
    if norm == "group":
        return nn.GroupNorm(groups(channels), channels)
    if norm == "batch":
        return BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    raise ValueError(f"norm is {', '.join(NORMS[:-1])} or {NORMS[-1]}, not {norm!r}")


def groups(channels: int) -> int:
    """The most groups, up to 32, that split `channels` evenly into groups of at least eight; else one."""
    fitting = (g for g in range(_MOST_GROUPS, 1, -1) if channels % g == 0)
    return next((g for g in fitting if channels // g >= _CHANNELS_PER_GROUP), 1)


def convolution(
    before: int,
    after: int,
    kernel: int,
    *,
    norm: str,
    stride: int = 1,
    padding: int | None = None,
    depthwise: bool = False,
    relu: bool = True,
) -> list[nn.Module]:
    """A convolution, its normalisation and a ReLU; `padding` keeps the size at stride 1 where it isn't given.

    The convolution has a bias only where no normalisation follows that would take it away again.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(
            before,
            after,
            kernel,
            stride=stride,
            padding=kernel // 2 if padding is None else padding,
            groups=before if depthwise else 1,
            bias=norm == "none",
        )
    ]
    if norm != "none":
        layers.append(normalisation(norm, after))
    return [*layers, nn.ReLU()] if relu else layers


def pooled() -> list[nn.Module]:
    """Each channel's mean over the whole map: the papers' last average pooling, whatever the input's size."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def projector(before: int, width: int) -> list[nn.Module]:
    """FedUV's non-linear projector: twice a linear map, batch normalisation and ReLU (Son et al. 2024, §4.1)."""
    layers: list[nn.Module] = []
    for inputs in (before, width):
        layers += [nn.Linear(inputs, width), BatchNorm1d(width), nn.ReLU()]
    return layers


def first_stride(shape: tuple[int, int, int], stride: int | None) -> int:
    """The stride that halves large inputs early: SphereFed's TIN_S is 2 from 64 px on and 1 below (Dong et al. 2022, §F.1)."""
    return stride if stride is not None else 2 if min(shape[1:]) >= 64 else 1


def _alone(x: Tensor) -> bool:
    return x.numel() == x.shape[1]


def _by_running_statistics(norm: BatchNorm1d | BatchNorm2d, x: Tensor) -> Tensor:
    # One value a channel has no variance; torch refuses it.
    return functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
    )
