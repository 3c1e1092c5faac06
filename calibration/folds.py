"""λ by cross-validation over K folds whose sums travel in one vector.

A fold's error needs no records: with W from (V − V_f, U − U_f), Σ‖y − Wᵀz‖² over the fold is
n_f − 2tr(WᵀU_f) + tr(WᵀV_fW). With V − V_f = QDQᵀ, P = Qᵀ(U − U_f) and s = 1/(d + λ) that is
n_f − 2·sᵀrowsum(P∘QᵀU_f) + sᵀ[(QᵀV_fQ)∘(PPᵀ)]s: one eigendecomposition and three products a fold give all λ at once.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.digest import digests_of
from calibration.errors import CalibrationError, ConfigMismatch, LayoutMismatch, NoRecords
from calibration.ffc import FFCStatistics
from calibration.layout import Layout
from calibration.layouts import ffc_layout, fold_layout
from calibration.ridge import default_grid, largest_of_ties, parse_grid, real_directions
from calibration.rows import (
    Array,
    Floats,
    Integers,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
)
from calibration.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from calibration.lattice import FeaturesLattice, SumsLattice


class FoldedStatistics:
    """FFC statistics of each of K folds: K times FFC's bytes.

    A record's fold follows from its digest. Copies of one record, whoever holds them, lie in one fold, so that none
    is fitted on its copy; and members need not agree on an order.

    Args:
        dim: features per record.
        classes: C.
        folds: K, from 2.
        settings: of `FFCStatistics`, the same for every fold.
    """

    def __init__(self, dim: int, classes: int, folds: int = 5, **settings: Any) -> None:
        self.layout = fold_layout(dim, classes, folds, bias=settings.get("bias", False))
        self.folds = [FFCStatistics(dim, classes, **settings) for _ in range(folds)]

    @property
    def total(self) -> FFCStatistics:
        """The statistics of all folds: what `solve_ffc` takes."""
        first, *others = self.folds
        total = copy.deepcopy(first)
        for each in others:
            total.merge(each)
        return total

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records, each to its fold.

        Args:
            features: as `FFCStatistics.update`.
            labels: (n,) integers.

        Raises:
            CalibrationError: as `FFCStatistics.update`. Nothing is added of a batch with a bad row or label.
        """
        first = self.folds[0]
        matrix = as_features(features, first.dim)
        indices = as_labels(labels, len(matrix), first.classes)
        check_rows(matrix, normalise=first.normalise)
        for block in row_blocks(*matrix.shape):
            rows, _ = unit_rows(matrix[block], first=block.start)
            digests = digests_of(rows, indices[block])
            chosen = np.array([int.from_bytes(digest[-8:], "little") % len(self.folds) for digest in digests])
            for fold, statistics in enumerate(self.folds):
                kept = chosen == fold
                statistics.update(matrix[block][kept], indices[block][kept])

    def merge(self, other: FoldedStatistics) -> None:
        """Add the records of `other` to these, fold by fold.

        Raises:
            ConfigMismatch: another number of folds, or as `FFCStatistics.merge`.
        """
        if len(other.folds) != len(self.folds):
            raise ConfigMismatch(f"{len(self.folds)} folds here and {len(other.folds)} there; cut both alike")
        for ours, theirs in zip(self.folds, other.folds, strict=True):
            ours.merge(theirs)

    def vector(self, lattice: SumsLattice | FeaturesLattice | None = None) -> Integers:
        """The (layout.elements,) int64 vector that goes into the secure sum, as `FFCStatistics.vector`.

        Raises:
            LatticeMismatch: as `FFCStatistics.vector`.
        """
        return np.concatenate([fold.vector(lattice) for fold in self.folds])

    @classmethod
    def from_sums(
        cls,
        layout: Layout,
        lattice: SumsLattice | FeaturesLattice,
        vector: Integers,
        *,
        bias: bool,
        members: int | None = None,
    ) -> FoldedStatistics:
        """Pooled folds from the centred sum of members' vectors, as `FFCStatistics.from_sums`.

        Raises:
            LayoutMismatch: not a layout of folds, or a vector of another length.
            CalibrationError: as `FFCStatistics.from_sums`.
        """
        rows, classes = layout.blocks[0].shape[0], layout.blocks[-1].shape[-1]
        dim, folds = rows - bool(bias), len(layout.blocks) // 3
        if dim < 1 or folds < 2 or layout != fold_layout(dim, classes, folds, bias=bias):
            raise LayoutMismatch(
                "not a layout of folds; make it with fold_layout(dim, classes, folds, bias=…)"
            )
        if vector.shape != (layout.elements,):
            raise LayoutMismatch(
                f"the vector has shape {vector.shape}; this layout needs ({layout.elements},)"
            )
        pooled = cls(dim, classes, folds, bias=bias, track_records=False)
        one = ffc_layout(dim, classes, bias=bias)
        pooled.folds = [
            FFCStatistics.from_sums(one, lattice, part, bias=bias, members=members)
            for part in np.split(vector, folds)
        ]
        return pooled


@dataclass(frozen=True, eq=False)
class FoldCurve:
    """Errors of cross-validation over a grid of ridges."""

    grid: Floats
    """(G,) λ, ascending. Without a fold fewer records are fitted, by a K-th; λ is not scaled for it."""
    errors: Floats
    """(K, G), Σ‖y − Wᵀz‖² over each fold's records, W fitted on the others."""
    records: Integers
    """(K,) records of each fold."""
    ridge: float
    """The largest λ whose mean error ties with the smallest."""

    @property
    def mean(self) -> Floats:
        """(G,) squared error a record."""
        mean: Floats = self.errors.sum(axis=0) / self.records.sum()
        return mean


def fold_curve(
    statistics: FoldedStatistics, grid: Sequence[float] | NDArray[np.floating] | None = None
) -> FoldCurve:
    """Cross-validated error of ridge at each λ; `solve_ffc(statistics.total, curve.ridge)` is the head.

    Args:
        statistics: at least one record outside each fold.
        grid: ridges; None for `default_grid`.

    Raises:
        NoRecords: all records lie in one fold.
        SingularSystem: the records outside a fold leave the weights undetermined at the smallest λ.
        CalibrationError: as `solve_ffc` for a grid; weighted classes.
    """
    total = statistics.total
    if total.class_weights is not None:
        raise CalibrationError(
            "fold errors of weighted classes are not defined here; accumulate without weights"
        )
    ridges = default_grid(max(total.records, 1), len(total.V)) if grid is None else parse_grid(grid)
    errors = np.array([_fold_errors(total, fold, ridges) for fold in statistics.folds])
    records = np.array([fold.records for fold in statistics.folds])
    best = largest_of_ties(errors.sum(axis=0))
    return FoldCurve(ridges, errors, records, float(ridges[best]))


def _fold_errors(total: FFCStatistics, fold: FFCStatistics, grid: Floats) -> Floats:
    fitted = total.records - fold.records
    if fitted == 0:
        raise NoRecords("all records lie in one fold, so nothing is left to fit on; add records")
    spectrum = Spectrum.of(total.V - fold.V, total.rounding_deviation)
    spectrum.check_invertible(float(grid[0]))
    real = real_directions(spectrum, fitted)
    Q = spectrum.vectors[:, real]
    shrunk = 1 / (spectrum.values[real, None] + grid)  # (r, G)
    P = Q.T @ (total.U - fold.U)
    linear = np.einsum("rc,rc->r", P, Q.T @ fold.U)
    quadratic = (Q.T @ fold.V @ Q) * (P @ P.T)
    errors: Floats = fold.records - 2 * linear @ shrunk + np.einsum("rg,rg->g", shrunk, quadratic @ shrunk)
    return np.maximum(errors, 0)
