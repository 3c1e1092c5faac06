"""Public moments that standardise tabular features, and their file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from veilsum.protocol.errors import Misuse
from veilsum.system.files import write_durably

Features = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Moments:
    """Public moments that standardise tabular features: (x − mean)/scale.

    The SHA-256 of the moments' file is the extractor of a study over standardised features, so that all members use the same moments.

    Attributes:
        mean: (dim,), subtracted from features.
        scale: (dim,), divisors above 0.
    """

    mean: Features
    scale: Features

    @classmethod
    def of_features(cls, features: Features) -> Self:
        """Compute mean and standard deviation of each column, over finite rows; the scale of a constant column is 1."""
        rows = features[np.isfinite(features).all(axis=1)].astype(np.float64)
        if not len(rows):
            raise Misuse("can't compute moments: every row holds NaN or infinity")
        # Rounding would give a constant column another mean and a tiny scale.
        varied, scale = rows.max(axis=0) > rows.min(axis=0), rows.std(axis=0)
        mean = np.where(varied, rows.mean(axis=0), rows[0])
        return cls(mean, np.where(varied & (scale > 0), scale, 1.0))

    @classmethod
    def load_moments(cls, path: Path) -> Self:
        """Read a file written by `save_moments`. Raises Misuse for any other file."""
        try:
            arrays = load_file(path)
            mean, scale = arrays["mean"], arrays["scale"]
        except (OSError, SafetensorError, KeyError) as error:
            raise Misuse(f"{path} does not hold moments: expected safetensors with mean and scale") from error
        shapes = mean.ndim == 1 and mean.shape == scale.shape
        if not (shapes and np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise Misuse(f"{path}: expected a finite mean and a scale above 0 for each feature")
        return cls(mean, scale)

    def save_moments(self, path: Path) -> None:
        """Write the moments to a safetensors file."""
        write_durably(path, save({"mean": self.mean, "scale": self.scale}))

    def standardise(self, features: npt.NDArray[Any]) -> Features:
        """Standardise (n, dim) features; returns float64."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise Misuse(
                f"features have shape {features.shape}; the moments are of {len(self.mean)} features"
            )
        found = features.astype(np.float64)
        found -= self.mean
        found /= self.scale
        return found


def moments_in(path: Path, parts: Sequence[Features]) -> Moments:
    """Read a file of moments; if it does not exist, compute it from these features and write it."""
    if not path.exists():
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise Misuse(
                f"files have {', '.join(map(str, sorted(widths)))} features, expected the same number in each"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        Moments.of_features(np.concatenate(parts)).save_moments(path)
    return Moments.load_moments(path)
