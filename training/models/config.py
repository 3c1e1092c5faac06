"""The configuration of an extractor as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from training.data.dataset import Dataset


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
