"""MobileNetV2 (Sandler et al. 2018) with the strides of small images (Dong et al. 2022, Table 14; Luo et al. 2021, Table 7)."""

from torch import Tensor, nn

from training.models.layers import Extractor, average_pooling, first_stride, make_convolution

# Expansion, output channels, blocks and first stride of the seven stages; None: 2 from 64 px on, 1 below.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, None),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_STEM_CHANNELS, _FEATURES_DIM = 32, 1280


class InvertedResidual(nn.Module):
    """Widen by a 1×1 convolution, filter each channel by 3×3, narrow by 1×1; add x if the shapes agree."""

    def __init__(self, before: int, after: int, expansion: int, stride: int, norm: str) -> None:
        super().__init__()
        inner = before * expansion
        widen = make_convolution(before, inner, 1, norm=norm) if expansion > 1 else []
        self.branch = nn.Sequential(
            *widen,
            *make_convolution(inner, inner, 3, stride=stride, depthwise=True, norm=norm),
            *make_convolution(inner, after, 1, norm=norm, relu=False),
        )
        self.same = before == after and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.branch(x)
        return x + y if self.same else y


def mobilenetv2(shape: tuple[int, int, int], *, norm: str = "group", stride: int | None = None) -> Extractor:
    """Seventeen inverted residuals; 1,280 features. SphereFed has norm="batch" on CIFAR-100 and groups elsewhere.

    The narrowing convolution is linear, which Sandler et al. (§3.2) found essential; SphereFed's table prints
    a ReLU there, and a widening convolution in the first block, which CCVR's does not have. Shortcuts are CCVR's: only if
    shapes agree. `stride` is that of the second stage.
    """
    blocks: list[nn.Module] = [nn.Sequential(*make_convolution(shape[0], _STEM_CHANNELS, 3, norm=norm))]
    before = _STEM_CHANNELS
    for expansion, after, count, first in _STAGES:
        step = first_stride(shape, stride) if first is None else first
        stage = [
            InvertedResidual(before if i == 0 else after, after, expansion, step if i == 0 else 1, norm)
            for i in range(count)
        ]
        blocks.append(nn.Sequential(*stage))
        before = after
    blocks.append(nn.Sequential(*make_convolution(before, _FEATURES_DIM, 1, norm=norm)))
    return Extractor(nn.Sequential(*blocks, *average_pooling()), _FEATURES_DIM)
