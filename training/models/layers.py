"""The extractor, and the pieces that architectures share: normalisation, convolutions, pooling, projectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.config import ExtractorConfig
from training.ranges import check_positive

NORMS = ("group", "batch", "none")
_CHANNELS_PER_GROUP, _MOST_GROUPS = 8, 32


class Extractor(nn.Module):
    """A network that ends in a feature vector.

    Attributes:
        dim: the length l of the feature vector.
        layers: maps (n, channels, height, width) to (n, dim). Where it is sequential, its children are the layers
            or blocks of the paper's table, in order.
        config: set by `build_extractor`.
        mean: each channel's mean in 0..1, of shape (C, 1, 1), or None. Not part of the state.
        std: each channel's standard deviation, likewise.
    """

    config: ExtractorConfig
    mean: Tensor | None
    std: Tensor | None

    def __init__(self, layers: nn.Module, dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.dim = dim
        self.expects((), ())

    def expects(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        """Set each channel's moments in 0..1; empty for none."""
        for name, values in (("mean", mean), ("std", std)):
            moments = torch.tensor(values)[:, None, None] if values else None
            self.register_buffer(name, moments, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(self.scale_pixels(x))
        return features

    def scale_pixels(self, x: Tensor) -> Tensor:
        """Scale bytes to 0..1 and normalise by the moments. Images stay bytes until then, a quarter of the memory."""
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        if self.mean is None or self.std is None:
            return x
        # One number per pixel in x's memory layout: CPUs vectorise nothing else.
        mean, std = (torch.empty_like(x[:1]).copy_(moments) for moments in (self.mean, self.std))
        return (x - mean).div_(std)


class BatchNorm1d(nn.BatchNorm1d):
    """Batch normalisation of vectors that normalises a single record by the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        return _by_running_statistics(self, x) if self.training and _is_single(x) else super().forward(x)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation of maps that normalises a single pixel by the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        return _by_running_statistics(self, x) if self.training and _is_single(x) else super().forward(x)


def make_normalisation(norm: str, channels: int) -> nn.Module:
    """Make the normalisation layer for `channels` channels; ValueError unless `norm` is one of `NORMS`.

    "group" is the default: batch statistics of one member's few classes do not represent the federation (Hsieh et
    al. 2020). Groups hold at least eight channels, so that a map of one pixel can be normalised, and there are at most 32
    (Wu and He 2018).
    """
    if norm == "group":
        return nn.GroupNorm(count_groups(channels), channels)
    if norm == "batch":
        return BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    raise ValueError(f"norm is {', '.join(NORMS[:-1])} or {NORMS[-1]}, not {norm!r}")


def count_groups(channels: int) -> int:
    """Return the most groups, up to 32, that split `channels` evenly into groups of at least eight; else one."""
    fitting = (g for g in range(_MOST_GROUPS, 1, -1) if channels % g == 0)
    return next((g for g in fitting if channels // g >= _CHANNELS_PER_GROUP), 1)


def make_convolution(
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
    """Make a convolution, its normalisation and a ReLU; the default padding keeps the size at stride 1.

    The convolution has a bias only without normalisation, which would remove it.
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
        layers.append(make_normalisation(norm, after))
    return [*layers, nn.ReLU()] if relu else layers


def average_pooling() -> list[nn.Module]:
    """Average each channel over the whole map: the papers' last average pooling, at any input size."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def make_projector(before: int, width: int) -> list[nn.Module]:
    """Make FedUV's projector: twice a linear map, batch normalisation and ReLU (Son et al. 2024, §4.1)."""
    layers: list[nn.Module] = []
    for inputs in (before, width):
        layers += [nn.Linear(inputs, width), BatchNorm1d(width), nn.ReLU()]
    return layers


def first_stride(shape: tuple[int, int, int], stride: int | None) -> int:
    """Return `stride`, or SphereFed's TIN_S: 2 from 64 px on and 1 below (Dong et al. 2022, §F.1)."""
    if stride is None:
        return 2 if min(shape[1:]) >= 64 else 1
    check_positive(stride=stride)
    return stride


def _is_single(x: Tensor) -> bool:
    return x.numel() == x.shape[1]


def _by_running_statistics(norm: BatchNorm1d | BatchNorm2d, x: Tensor) -> Tensor:
    # One value per channel has no variance; torch refuses it.
    return functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
    )
