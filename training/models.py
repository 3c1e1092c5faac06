"""Feature extractors f: (n, channels, height, width) -> (n, dim), always apart from the head above them.

Group normalisation throughout: batch statistics of one member's few classes are no statistics of the
federation (Hsieh et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, prod
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor


class Extractor(nn.Module):
    """A network that ends in a feature vector.

    Attributes:
        dim: the length l of the feature vector.
        layers: maps (n, channels, height, width) to (n, dim).
        config: what it was built from; set by `ExtractorConfig.build`.
    """

    config: ExtractorConfig

    def __init__(self, layers: nn.Module, dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The features of x, of shape (n, dim)."""
        features: Tensor = self.layers(x)
        return features


@dataclass(frozen=True)
class ExtractorConfig:
    """What another process needs to build the same network, as plain data.

    Attributes:
        architecture: a name in `ARCHITECTURES`.
        shape: the input's (channels, height, width).
        options: the architecture's own keyword arguments.
    """

    architecture: str
    shape: tuple[int, int, int]
    options: Mapping[str, int] = field(default_factory=dict)

    def build(self) -> Extractor:
        """A new network, initialised from torch's generator.

        Raises:
            ValueError: if no architecture has this name.
        """
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(sorted(ARCHITECTURES))
            raise ValueError(f"no architecture is called {self.architecture!r}; there are {known}")
        extractor = ARCHITECTURES[self.architecture](self.shape, **self.options)
        extractor.config = self
        return extractor


def mlp(shape: tuple[int, int, int], *, hidden: int = 128, dim: int = 64) -> Extractor:
    """Two layers: hidden units with ReLU, then a linear map, so that features may point anywhere."""
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), hidden),
        nn.GroupNorm(1, hidden),
        nn.ReLU(),
        nn.Linear(hidden, dim),
    )
    return Extractor(layers, dim)


def cnn(shape: tuple[int, int, int], *, width: int = 16, dim: int = 64) -> Extractor:
    """Two 3×3 convolutions of `width` and 2·`width` channels for 8×8 to 32×32 images.

    Each is followed by group normalisation, ReLU and 2×2 max pooling; a 2×2 grid of averages and a linear
    map give the features.
    """
    layers = nn.Sequential(
        *_convolution(shape[0], width),
        *_convolution(width, 2 * width),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, dim),
    )
    return Extractor(layers, dim)


def _convolution(before: int, after: int) -> list[nn.Module]:
    return [
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.GroupNorm(gcd(8, after), after),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


ARCHITECTURES: dict[str, Callable[..., Extractor]] = {"mlp": mlp, "cnn": cnn}
