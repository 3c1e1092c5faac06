"""How far one record, or one member, can move what is released.

Blocks are weighted against each other before they are measured: V by 1, U by w, counts by α. The norm of V is Frobenius':
an element off the diagonal of the packed triangle stands for two. Records are rows of norm 1 at most, which
`FeaturesLattice` keeps in integers, so nothing here needs clipping. With ρ = z·z′ for the two records of a replacement,

    ‖zzᵀ − z′z′ᵀ‖² ≤ 2 − 2ρ²,   ‖U − U′‖² ≤ 2 − 2ρ if the labels agree, else 2.

For rows shorter than 1 these still bound (x⁴ + y⁴ and x² + y² only fall).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.lattice import require_int64

if TYPE_CHECKING:
    from calibration.rows import Floats, Integers

_EPS = float(np.finfo(np.float64).eps)


class Neighbours(StrEnum):
    """Which two data sets must be hard to tell apart."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


def mean_sensitivity(neighbours: Neighbours = Neighbours.ADD_REMOVE, *, nonnegative: bool = False) -> float:
    """Δ of Σ(z, 1)/√2, rows of length 1 at most: 1; replacing one moves it by 2, or by √2 where no feature is below 0."""
    if neighbours is Neighbours.ADD_REMOVE:
        return 1.0
    return math.sqrt(2) if nonnegative else 2.0


def gradient_sensitivity(neighbours: Neighbours = Neighbours.ADD_REMOVE) -> float:
    """Δ of Σ z·rᵀ/c, ‖z‖ ≤ 1 and r no longer than c: 1; replacing a record moves it by 2, where z′ = −z and r′ = r."""
    return 1.0 if neighbours is Neighbours.ADD_REMOVE else 2.0


def ffc_sensitivity(
    weight: float,
    *,
    counts_weight: float = 0.0,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    nonnegative: bool = False,
) -> float:
    """Δ of (V, wU, αn) for one record.

    Args:
        weight: w of U, positive.
        counts_weight: α of the class counts; 0 where none are released.
        neighbours: adding or removing a record, √(1 + w² + α²), or replacing one by another.
        nonnegative: no feature is below 0, as after a ReLU: then ρ ≥ 0.

    Raises:
        CalibrationError: a weight outside its domain.
    """
    _check_weights(weight, counts_weight)
    w2, a2 = weight**2, counts_weight**2
    if neighbours is Neighbours.ADD_REMOVE:
        return math.sqrt(1 + w2 + a2)
    return math.sqrt(max(_same_label(w2, 1.0, nonnegative=nonnegative), 2 + 2 * w2 + 2 * a2))


def ccvr_sensitivity(
    count: float,
    total: float,
    second: float,
    *,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    nonnegative: bool = False,
) -> float:
    """Δ of CCVR's per-class (αn_c, βΣz, γΣzzᵀ) for one record, which touches one class.

    Args:
        count: α.
        total: β.
        second: γ.
        neighbours: adding or removing a record, √(α² + β² + γ²), or replacing one, maybe of another class.
        nonnegative: as in `ffc_sensitivity`.

    Raises:
        CalibrationError: a weight outside its domain.
    """
    _check_weights(total, count)
    _check_weights(second, 0.0)
    added = count**2 + total**2 + second**2
    if neighbours is Neighbours.ADD_REMOVE:
        return math.sqrt(added)
    return math.sqrt(max(_same_label(total**2, second**2, nonnegative=nonnegative), 2 * added))


def member_sensitivity(bound: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> float:
    """Δ of a whole member whose vector `clip_member` keeps within `bound`."""
    return bound if neighbours is Neighbours.ADD_REMOVE else 2 * bound


def clip_member(vector: Integers, weights: Floats, bound: float) -> Integers:
    """Shrink a member's vector so that its weighted norm is at most `bound`; one that is within it stays as it is.

    Every element is scaled by one factor and cut toward zero, which keeps integers integers and the norm below
    the bound; the factor is a little too small to make up for what floating point rounds.

    Args:
        vector: (n,) int64, below 2^53 in magnitude, in grid steps.
        weights: (n,) float64, what one step of each element weighs: `Mechanism.weights` (√2 of it off the diagonal).
        bound: in the unit of the weighted norm, positive.

    Returns:
        (n,) int64, `vector` itself if nothing had to be clipped.

    Raises:
        CalibrationError: a bound that isn't positive and finite, or an element float64 doesn't hold.
        LayoutMismatch: weights of another shape.
        WrongDtype: not int64.
    """
    require_int64(vector)
    if weights.shape != vector.shape or vector.ndim != 1:
        raise LayoutMismatch(
            f"the vector has shape {vector.shape}, its weights {weights.shape}; pass one (n,) each"
        )
    if not (math.isfinite(bound) and bound > 0):
        raise CalibrationError(f"a member is clipped to a positive bound, not to {bound!r}")
    if vector.size and not -(2**53) < int(vector.min()) <= int(vector.max()) < 2**53:
        raise CalibrationError("an element of 2^53 steps or more can't be clipped; take a coarser lattice")
    weighted = vector * weights
    # The sum of n squares is off by (n + 4)·eps at most, whatever its order.
    norm = float(np.linalg.norm(weighted)) * (1 + (vector.size + 4) * _EPS)
    if norm <= bound:
        return vector
    clipped: Integers = np.trunc(vector * (bound / norm * (1 - 4 * _EPS))).astype(np.int64)
    return clipped


def _same_label(first: float, second: float, *, nonnegative: bool) -> float:
    """The largest first·(2 − 2ρ) + second·(2 − 2ρ²), ρ from −1, or from 0, to 1."""
    if nonnegative:
        return 2 * first + 2 * second
    if first <= 2 * second:
        return 2 * first + 2 * second + first**2 / (2 * second)
    return 4 * first


def _check_weights(positive: float, other: float) -> None:
    if not (math.isfinite(positive) and positive > 0 and math.isfinite(other) and other >= 0):
        raise CalibrationError(
            f"weights are finite, those of features positive, those of counts not negative; got {positive!r}, {other!r}"
        )
