"""Public moments that standardise tabular features, and their file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from veilsum.cli.tables import Table
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
        columns: the features' names; empty if the file names none.
    """

    mean: Features
    scale: Features
    columns: tuple[str, ...] = ()

    @classmethod
    def of_features(cls, features: Features, columns: tuple[str, ...] = ()) -> Self:
        """Compute mean and standard deviation of each column, over finite rows; the scale of a constant column is 1."""
        rows = features[np.isfinite(features).all(axis=1)].astype(np.float64)
        if not len(rows):
            raise Misuse("can't compute moments: every row holds NaN or infinity")
        # Rounding would give a constant column another mean and a tiny scale.
        varied, scale = rows.max(axis=0) > rows.min(axis=0), rows.std(axis=0)
        mean = np.where(varied, rows.mean(axis=0), rows[0])
        return cls(mean, np.where(varied & (scale > 0), scale, 1.0), columns)

    @classmethod
    def load_moments(cls, path: Path) -> Self:
        """Read a file written by `save_moments`. Raises Misuse for any other file."""
        try:
            with safe_open(path, framework="numpy") as file:
                mean, scale = file.get_tensor("mean"), file.get_tensor("scale")
                columns = TypeAdapter(tuple[str, ...]).validate_json(
                    (file.metadata() or {}).get("columns", "[]")
                )
        except (OSError, SafetensorError, TypeError, ValidationError) as error:  # TypeError: not numpy's type
            raise Misuse(
                f"{path} does not hold moments: expected safetensors with mean, scale and, as metadata, JSON columns"
            ) from error
        shapes = mean.ndim == 1 and mean.shape == scale.shape and len(columns) in {0, len(mean)}
        if not (shapes and np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise Misuse(f"{path}: expected a finite mean and a scale above 0 for each feature")
        return cls(mean, scale, columns)

    def save_moments(self, path: Path) -> None:
        """Write the moments to a safetensors file."""
        names = {"columns": json.dumps(self.columns)} if self.columns else None
        write_durably(path, save({"mean": self.mean, "scale": self.scale}, names))

    def standardise_table(self, table: Table) -> Table:
        """Standardise a table, whose columns are matched by name if both have names. Raises Misuse if they don't fit."""
        ordered = table.order_columns(self.columns, "those of the moments")
        return replace(ordered, features=self.standardise_features(ordered.features))

    def standardise_features(self, features: npt.NDArray[Any]) -> Features:
        """Standardise (n, dim) features; returns float64."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise Misuse(
                f"features have shape {features.shape}; expected {len(self.mean)} columns, as the moments have"
            )
        found = features.astype(np.float64)
        found -= self.mean
        found /= self.scale
        return found


def moments_in(path: Path, tables: Sequence[Table]) -> Moments:
    """Read a file of moments; if it does not exist, compute it from these tables, whose columns agree, and write it."""
    if not path.exists():
        parts = [table.features[~table.is_canary] for table in tables]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise Misuse(
                f"files have {', '.join(map(str, sorted(widths)))} features, expected the same number in each"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = next((table.columns for table in tables if table.columns), ())
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        Moments.of_features(whole, columns).save_moments(path)
    return Moments.load_moments(path)
