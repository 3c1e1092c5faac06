"""Architectures by name, and their configuration as plain data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Self

import torch
from torch import nn

from training.data.dataset import Dataset
from training.imports import imported, is_import_path
from training.models.layers import Extractor
from training.models.mobilenet import mobilenetv2
from training.models.plain import cnn, convnet7, feduv_cnn, mlp, moon_cnn, vgg11, vgg13
from training.models.resnet import resnet18, resnet50, senet18


@dataclass(frozen=True)
class ExtractorConfig:
    """Plain data from which any process builds the same network.

    Attributes:
        architecture: a name in `ARCHITECTURES`, or the import path of a function or class that makes a module from `shape`
            and the options.
        shape: the input's (channels, height, width), or (length,) of vectors.
        options: the architecture's keyword arguments.
        mean: each channel's mean in 0..1, which the network subtracts; empty for none.
        std: each channel's standard deviation, by which it divides.
    """

    architecture: str
    shape: tuple[int, ...]
    options: Mapping[str, int | str] = field(default_factory=dict)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, architecture: str, data: Dataset, **options: int | str) -> Self:
        """Configure an architecture for a data set's images, normalised by its published moments."""
        return cls(architecture, data.shape, options, data.mean, data.std)

    @property
    def preprocessing(self) -> str:
        """How the network scales pixels, in words that an extractor's digest covers."""
        scaled = "bytes over 255"
        return f"{scaled}, less {self.mean}, over {self.std}" if self.mean else scaled

    def build(self) -> Extractor:
        """Build a network, initialised from torch's generator."""
        if is_import_path(self.architecture):
            architecture = imported(self.architecture)
        elif self.architecture in ARCHITECTURES:
            architecture = ARCHITECTURES[self.architecture]
            if len(self.shape) != 3 and self.architecture != "mlp":
                raise ValueError(
                    f"{self.architecture} needs images; for inputs of shape {self.shape} take mlp"
                )
        else:
            known = ", ".join(sorted(ARCHITECTURES))
            raise ValueError(f"no architecture is called {self.architecture!r}; there are {known}")
        allowed = list(signature(architecture).parameters)[1:]
        if unknown := sorted(set(self.options) - set(allowed)):
            has = f"its options are {', '.join(allowed)}" if allowed else "it has none"
            raise ValueError(f"{self.architecture} has no option {unknown[0]!r}; {has}")
        if not len(self.mean) == len(self.std) in {0, self.shape[0]} or not all(
            value > 0 for value in self.std
        ):
            raise ValueError(
                f"mean and std must have {self.shape[0]} entries, one a channel, or none, and std be positive"
            )
        made = architecture(self.shape, **self.options)
        extractor = made if isinstance(made, Extractor) else Extractor(made, _features(made, self.shape))
        extractor.config = self
        extractor.expects(tuple(self.mean), tuple(self.std))
        return extractor


@torch.no_grad()
def _features(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the length of a module's feature vectors."""
    features = module.eval()(torch.zeros(2, *shape))
    module.train()
    if features.ndim != 2 or len(features) != 2:
        raise ValueError(
            f"an extractor maps (n, …) to features of shape (n, l), not to {tuple(features.shape)}"
        )
    return int(features.shape[1])


_PLAIN: list[Callable[..., Extractor]] = [cnn, convnet7, feduv_cnn, mlp, moon_cnn, vgg11, vgg13]
_RESIDUAL: list[Callable[..., Extractor]] = [mobilenetv2, resnet18, resnet50, senet18]
ARCHITECTURES = {make.__name__: make for make in _PLAIN + _RESIDUAL}
