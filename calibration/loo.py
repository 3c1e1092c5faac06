"""Exact leave-one-out errors of ridge, from a second round over the same records.

A record's error when it is left out follows from the fit on all: (y − Wᵀz)/(1 − h), h = zᵀ(V + λI)⁻¹z (Allen 1974).
It isn't linear in sums, so the coordinator publishes V = QDQᵀ and P = QᵀU of the first round, and members sum the
squares. The same survivors must answer: Σh is then the effective degrees of freedom, which is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.digest import digest_of
from calibration.errors import CalibrationError, NoRecords, SumCheckFailed
from calibration.layout import DenseBlock, Layout
from calibration.ridge import default_grid, largest_of_ties, parse_grid
from calibration.rows import (
    Array,
    Floats,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
    with_constant,
)
from calibration.spectrum import Spectrum
from calibration.sums import RecordSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from calibration.ffc import FFCStatistics

SQUARE_MAX = 4.0
"""A record's squared error counts for this at most, so that no record adds more than 1 once divided by it. A label's
one-hot and the scores that ridge gives seldom lie 2 apart; how often they did is counted."""

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class RidgePath:
    """All ridge solutions of one sum over a grid of λ; made by `ridge_path`, and published to the members."""

    vectors: Floats
    """(l, l), Q."""
    values: Floats
    """(l,), D."""
    projections: Floats
    """(l, C), P = QᵀU."""
    grid: Floats
    """(G,) λ above 0, ascending."""
    constant: float | None
    """The value of the constant column, if there is one."""
    records: int
    """N."""
    slack: Floats
    """(G,) by how much rounding of the first round's sums may move Σh."""


def ridge_path(
    statistics: FFCStatistics, grid: Sequence[float] | NDArray[np.floating] | None = None
) -> RidgePath:
    """What members need for the second round: l² + lC + l + G numbers, all of them functions of the sums.

    Args:
        statistics: pooled, in float64, without class weights.
        grid: ridges above 0; None for `default_grid`.

    Raises:
        NoRecords: the statistics are empty.
        CalibrationError: as `solve_ffc` for a grid; λ = 0; weighted classes; a features lattice.
    """
    if not statistics.records:
        raise NoRecords("the statistics hold no records; sum a first round before the second")
    if statistics.class_weights is not None or statistics.lattice is not None:
        raise CalibrationError(
            "leave-one-out is exact for plain sums in float64; accumulate without weights or a lattice"
        )
    ridges = default_grid(statistics.records, len(statistics.V)) if grid is None else parse_grid(grid)
    if ridges[0] == 0:
        raise CalibrationError(
            "at λ = 0 a record alone in its direction has no error when left out; pass ridges above 0"
        )
    spectrum = Spectrum.of(statistics.V, statistics.rounding_deviation)
    d = spectrum.values[:, None]
    return RidgePath(
        vectors=spectrum.vectors,
        values=spectrum.values,
        projections=spectrum.vectors.T @ statistics.U,
        grid=ridges,
        constant=statistics.constant if statistics.bias else None,
        records=statistics.records,
        slack=spectrum.noise * (1 / (d + ridges)).sum(axis=0),
    )


class LeaveOneOutStatistics(RecordSums):
    """Sums of leave-one-out errors over a grid of λ: 4G + 1 numbers.

    Args:
        path: as published after the first round.
    """

    def __init__(self, path: RidgePath) -> None:
        G = len(path.grid)
        names = ("squares", "hits", "leverage", "clipped")
        super().__init__(Layout((*(DenseBlock(name, (G,)) for name in names), DenseBlock("n", (1,)))))
        self.path = path

    def terms(self) -> bytes:
        """A hash of the path."""
        arrays = {name: value for name, value in vars(self.path).items() if isinstance(value, np.ndarray)}
        return digest_of(arrays, {"constant": self.path.constant, "records": self.path.records})

    def update(self, features: Array, labels: Array, *, normalise: bool = False) -> None:
        """Add a batch of the records that the first round summed.

        Args:
            features: (n, dim) as in the first round.
            labels: (n,) integers.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `FFCStatistics.update`; nothing is added then.
        """
        width, classes = self.path.projections.shape
        matrix = as_features(features, width - (self.path.constant is not None))
        indices = as_labels(labels, len(matrix), classes)
        check_rows(matrix, normalise=normalise)
        for block in row_blocks(len(matrix), max(width, classes)):
            rows, _ = unit_rows(matrix[block], first=block.start)
            solved = rows if self.path.constant is None else with_constant(rows, self.path.constant)
            self._add(solved @ self.path.vectors, indices[block])

    def _add(self, rotated: Floats, labels: NDArray[np.int64]) -> None:
        own = np.arange(len(labels)), labels
        held = self.path.projections.any(axis=0)
        for index, ridge in enumerate(self.path.grid):
            shrunk = 1 / (self.path.values + ridge)
            # V ⪰ zzᵀ, so h ≤ 1/(1 + λ); a record that the first round did not sum may lie beyond.
            leverage = np.minimum(rotated**2 @ shrunk, 1 / (1 + ridge))
            scores = (rotated * shrunk) @ self.path.projections
            scores[own] -= leverage
            scores /= (1 - leverage)[:, None]
            hits = np.where(held, scores, -np.inf).argmax(axis=1) == labels
            scores[own] -= 1
            squares = (scores**2).sum(axis=1)
            self._sums["squares"][index] += np.minimum(squares / SQUARE_MAX, 1).sum()
            self._sums["hits"][index] += hits.sum()
            self._sums["leverage"][index] += leverage.sum()
            self._sums["clipped"][index] += (squares > SQUARE_MAX).sum()
        self._sums["n"] += len(labels)

    @property
    def errors(self) -> Floats:
        """(G,) mean squared error of a record that was left out."""
        return self.block("squares") * SQUARE_MAX / max(self.records, 1)

    @property
    def accuracies(self) -> Floats:
        """(G,) share of records whose class is the highest score without them."""
        return self.block("hits") / max(self.records, 1)

    @property
    def clipped(self) -> Floats:
        """(G,) records whose squared error exceeded `SQUARE_MAX`: where this is 0, `errors` is exact."""
        return self.block("clipped")

    @property
    def ridge(self) -> float:
        """The largest λ whose error ties with the smallest.

        Raises:
            NoRecords: nothing was summed.
        """
        if not self.records:
            raise NoRecords("no record was left out; update or add sums first")
        return float(self.path.grid[largest_of_ties(self.errors)])

    def check_same_records(self) -> None:
        """Check that the records are those of the first round, as far as sums tell.

        Raises:
            SumCheckFailed: another number of records, or Σh differs from tr((V + λI)⁻¹V).
        """
        if self.records != self.path.records:
            raise SumCheckFailed(
                f"{self.records} records answered, the first round summed {self.path.records}; repeat both rounds "
                "with one set of survivors",
                identity="records",
            )
        dofs = (self.path.values[:, None] / (self.path.values[:, None] + self.path.grid)).sum(axis=0)
        # 12 deviations, as a ring's noise tail; the sums of products themselves are good to N(N + l)·eps.
        summed = self.records * (self.records + len(self.path.values)) * _EPS
        slack = self.path.slack + 12 * self.rounding_deviation + summed * (1 + 1 / self.path.grid)
        apart = np.abs(self.block("leverage") - dofs)
        if (apart > slack).any():
            worst = int(np.argmax(apart - slack))
            raise SumCheckFailed(
                f"at λ = {self.path.grid[worst]:g} the leverages add up to {self.block('leverage')[worst]:g}, not "
                f"{dofs[worst]:g}; other records answered than the first round summed",
                identity="leverage",
            )
