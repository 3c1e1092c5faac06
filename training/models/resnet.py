"""ResNet-18 and ResNet-50 (He et al. 2016) for small images, and SENet-18 (Hu et al. 2018)."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from training.models.layers import Extractor, average_pooling, first_stride, make_convolution
from training.models.layers import make_projector as projected
from training.ranges import not_negative

Branch = Callable[[int, int, int, str], list[nn.Module]]

_WIDTHS = (64, 128, 256, 512)
_BOTTLENECK_EXPANSION = 4
_SQUEEZE_REDUCTION = 16


class Residual(nn.Module):
    """ReLU(branch(x) + shortcut(x)); the shortcut is a 1×1 convolution if the shapes differ."""

    def __init__(self, branch: Sequence[nn.Module], before: int, after: int, stride: int, norm: str) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        same = before == after and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity()
            if same
            else nn.Sequential(*make_convolution(before, after, 1, stride=stride, norm=norm, relu=False))
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate in 0..1 computed from all channels' means (Hu et al. 2018, eqs. 2–4)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            *average_pooling(),
            nn.Linear(channels, channels // _SQUEEZE_REDUCTION),
            nn.ReLU(),
            nn.Linear(channels // _SQUEEZE_REDUCTION, channels),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * self.gate(x)[:, :, None, None]
        return scaled


def resnet18(
    shape: tuple[int, int, int], *, norm: str = "group", stride: int | None = None, projector: int = 0
) -> Extractor:
    """Eight basic blocks on a 3×3 stem, without the max pooling (Dong et al. 2022, Table 15); 512 features.

    `norm` is one of `NORMS`. `stride`, of the first stage, is 2 from 64 px on and 1 below, unless given (FedUV's is 2 at any size).
    `projector` is the width of FedUV's projector; 0 has none.
    """
    return _make_resnet(shape, _basic_branch, (2, 2, 2, 2), 1, norm, stride, projector)


def resnet50(
    shape: tuple[int, int, int],
    *,
    norm: str = "group",
    stride: int | None = None,
    projector: int = 0,
    stem: int = 3,
) -> Extractor:
    """Sixteen bottlenecks, without the max pooling, with `resnet18`'s options; 2,048 features.

    `stem` is the first convolution's size: 3, or 7 with stride 2, as in FedUV with `stride=1`.
    """
    return _make_resnet(
        shape, _bottleneck_branch, (3, 4, 6, 3), _BOTTLENECK_EXPANSION, norm, stride, projector, stem
    )


def senet18(shape: tuple[int, int, int], *, norm: str = "group", stride: int | None = None) -> Extractor:
    """ResNet-18 with squeeze and excitation at the end of each branch (Dong et al. 2022, Table 13); 512 features.

    The gate comes before the sum with the shortcut, as in Hu et al. 2018, Fig. 3.
    """
    return _make_resnet(shape, _excited_branch, (2, 2, 2, 2), 1, norm, stride, 0)


def _make_resnet(
    shape: tuple[int, int, int],
    branch: Branch,
    depths: tuple[int, ...],
    expansion: int,
    norm: str,
    stride: int | None,
    width: int,
    stem: int = 3,
) -> Extractor:
    not_negative(projector=width)
    if stem not in {3, 7}:
        raise ValueError(f"stem must be 3 or 7, not {stem}")
    stages: list[nn.Module] = [
        nn.Sequential(*make_convolution(shape[0], _WIDTHS[0], stem, stride=1 if stem == 3 else 2, norm=norm))
    ]
    before = _WIDTHS[0]
    for inner, depth, first in zip(_WIDTHS, depths, (first_stride(shape, stride), 2, 2, 2), strict=True):
        blocks = []
        for i in range(depth):
            step = 1 if i else first
            blocks.append(Residual(branch(before, inner, step, norm), before, inner * expansion, step, norm))
            before = inner * expansion
        stages.append(nn.Sequential(*blocks))
    above = projected(before, width) if width else []
    return Extractor(nn.Sequential(*stages, *average_pooling(), *above), width or before)


def _basic_branch(before: int, width: int, stride: int, norm: str) -> list[nn.Module]:
    return [
        *make_convolution(before, width, 3, stride=stride, norm=norm),
        *make_convolution(width, width, 3, norm=norm, relu=False),
    ]


def _excited_branch(before: int, width: int, stride: int, norm: str) -> list[nn.Module]:
    return [*_basic_branch(before, width, stride, norm), SqueezeExcitation(width)]


def _bottleneck_branch(before: int, width: int, stride: int, norm: str) -> list[nn.Module]:
    return [
        *make_convolution(before, width, 1, norm=norm),
        *make_convolution(width, width, 3, stride=stride, norm=norm),
        *make_convolution(width, width * _BOTTLENECK_EXPANSION, 1, norm=norm, relu=False),
    ]
