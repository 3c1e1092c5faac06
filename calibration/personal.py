"""A head between a member's own and everybody's: their sums, mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, ConfigMismatch, NoRecords
from calibration.head import Head
from calibration.rows import Array, Floats, as_labels, with_constant
from calibration.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.ffc import FFCStatistics

WEIGHTS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True, eq=False)
class Personal(Head):
    """The head of (V + βV_own + λI)W = U + βU_own."""

    weight: float
    """β, how much more one's own records count."""
    weights_tried: Floats
    """(B,) ascending."""
    errors: Floats
    """(B,) mean squared error over the held-out records at each."""

    def _changed(self, weights: Floats, bias: Floats | None) -> Head:
        return Head(weights, bias, self.empty_classes)


def personalise(
    pooled: FFCStatistics,
    own: FFCStatistics,
    features: Array,
    labels: Array,
    *,
    ridge: float,
    weights: Sequence[float] = WEIGHTS,
    normalise: bool = False,
) -> Personal:
    """Let a member's own records count (1 + β) times, β chosen on records that it kept back.

    SphereFed (Dong et al. 2022, appendix B) personalises by FFC on own records alone; β → ∞ is that head, β = 0 the
    pooled one. All of it happens at the member, which needs the pooled V and U, not the weights alone.

    Args:
        pooled: sums of all members, these own ones included.
        own: the member's sums.
        features: (n, dim) of records in neither, n ≥ 1.
        labels: (n,) integers.
        ridge: λ above 0, as the pooled head's.
        weights: β to choose from, each from 0.
        normalise: accept rows of any length.

    Raises:
        ConfigMismatch: another dim, number of classes or bias.
        NoRecords: nothing pooled, or nothing held out.
        CalibrationError: a ridge not above 0, a weight below 0 or none; as `FFCStatistics.update` for the records.
    """
    for setting in ("dim", "classes", "bias"):
        if getattr(pooled, setting) != getattr(own, setting):
            raise ConfigMismatch(
                f"{setting} differs between the pooled and the own sums; accumulate both alike"
            )
    betas = np.unique(np.asarray(weights, np.float64))
    if not 0 < ridge < np.inf or not betas.size or not np.isfinite(betas).all() or betas[0] < 0:
        raise CalibrationError(
            f"λ is above 0 and weights are not negative; got {ridge!r} and {list(weights)}"
        )
    empty = tuple(np.flatnonzero(pooled.counts + own.counts == 0).tolist())
    blank = Head(np.zeros((pooled.dim, pooled.classes)), None, empty)
    rows = blank.rows(features, normalise=normalise)
    held_out = as_labels(labels, len(rows), pooled.classes)
    if not pooled.records or not len(rows):
        raise NoRecords(
            "a personal head needs pooled sums and at least one record held out to choose its weight"
        )
    solved = with_constant(rows, pooled.constant) if pooled.bias else rows
    wanted = np.eye(pooled.classes)[held_out]
    solutions = [_solve(pooled.V + beta * own.V, pooled.U + beta * own.U, ridge) for beta in betas]
    errors = np.array([((wanted - solved @ W) ** 2).sum(axis=1).mean() for W in solutions])
    best = int(errors.argmin())  # the smallest β among equals: nearer to everybody's
    W = solutions[best]
    return Personal(
        weights=W[:-1] * np.sqrt(0.5) if pooled.bias else W,
        bias=W[-1] * pooled.constant if pooled.bias else None,
        empty_classes=empty,
        weight=float(betas[best]),
        weights_tried=betas,
        errors=errors,
    )


def _solve(V: Floats, U: Floats, ridge: float) -> Floats:
    spectrum = Spectrum.of(V)
    spectrum.check_invertible(ridge)
    solution: Floats = spectrum.vectors @ ((spectrum.vectors.T @ U) / (spectrum.values + ridge)[:, None])
    return solution
