"""How far one record, or one member, can move what is released.

Blocks are weighted against each other before they are measured: V by 1, U by w, counts by α. The norm of V is Frobenius':
an element off the diagonal of the packed triangle stands for two. Records are rows of norm 1 at most, which
`FeaturesLattice` keeps in integers, so nothing here needs clipping.

A row may end in a constant whose square is κ; what comes before it is a, ‖a‖² ≤ s = 1 − κ. Of the two records of a replacement, with
ρ = a·a′ from −s (from 0 where no feature is below 0) to s, the constants cancel, and

    ‖zzᵀ − z′z′ᵀ‖² ≤ 2s² − 2ρ² + 4κ(s − ρ),   ‖U − U′‖² ≤ 2(s − ρ) if the labels agree, else 2,

the first greatest at ρ = −κ. For shorter rows these still bound: at one ρ they only fall with either length. A record that a member
leaves out is a row of zeros, as far from any other as adding one moves the sum, and no formula below gives less than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.lattice import require_int64

if TYPE_CHECKING:
    from collections.abc import Callable

    from calibration.rows import Floats, Integers

_EPS = float(np.finfo(np.float64).eps)


class Neighbours(StrEnum):
    """Which two data sets must be hard to tell apart."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


@dataclass(frozen=True)
class Release:
    """How a noisy round's blocks are weighted against each other, and how far one record moves them all.

    Attributes:
        sensitivity: Δ of the weighted blocks.
        weight: w, of U and of the sums of classes.
        counts_weight: α, of counts; 0 where none are released.
    """

    sensitivity: float
    weight: float = 1.0
    counts_weight: float = 0.0


def mean_sensitivity(
    neighbours: Neighbours = Neighbours.ADD_REMOVE, *, nonnegative: bool = False, constant: float = 0.5
) -> float:
    """Δ of Σ(z, 1)/√2, rows of length 1 at most: 1; replacing one moves it by √2, or by 1 where no feature is below 0.

    Args:
        neighbours: as `ffc_sensitivity`.
        nonnegative: as `ffc_sensitivity`.
        constant: κ, `FeaturesLattice.constant_share` where it was rounded: then √(4(1 − κ)), or √(2(1 − κ)).
    """
    if neighbours is Neighbours.ADD_REMOVE:
        return 1.0
    return max(1.0, math.sqrt((2 if nonnegative else 4) * (1 - constant)))


def gradient_sensitivity(neighbours: Neighbours = Neighbours.ADD_REMOVE) -> float:
    """Δ of Σ z·rᵀ/c, ‖z‖ ≤ 1 and r no longer than c: 1; replacing a record moves it by 2, where z′ = −z and r′ = r."""
    return 1.0 if neighbours is Neighbours.ADD_REMOVE else 2.0


def ffc_sensitivity(
    weight: float,
    *,
    counts_weight: float = 0.0,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    nonnegative: bool = False,
    constant: float = 0.0,
) -> float:
    """Δ of (V, wU, αn) for one record.

    Args:
        weight: w of U, positive.
        counts_weight: α of the class counts; 0 where none are released.
        neighbours: adding or removing a record, √(1 + w² + α²), or replacing one by another.
        nonnegative: no feature is below 0, as after a ReLU: then ρ ≥ 0.
        constant: κ, the square of the constant at the end of each row, ½ at the most; 0 where there is none.

    Raises:
        CalibrationError: a weight outside its domain.
    """
    _check_weights(weight, counts_weight)
    w2, a2 = weight**2, counts_weight**2
    if neighbours is Neighbours.ADD_REMOVE:
        return math.sqrt(1 + w2 + a2)
    return math.sqrt(_replaced(w2, 1.0, a2, constant=constant, nonnegative=nonnegative))


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
    same = _same_label(total**2, second**2, 0.0, nonnegative=nonnegative)
    return math.sqrt(max(same, 2 * added))


def member_sensitivity(bound: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> float:
    """Δ of a whole member whose vector `clip_member` keeps within `bound`."""
    return bound if neighbours is Neighbours.ADD_REMOVE else 2 * bound


def protected(
    of_record: Callable[[Neighbours], float], neighbours: Neighbours, member_records: int | None
) -> float:
    """Δ of a record, or of a member that is cut to the length of so many of them."""
    if member_records is None:
        return of_record(neighbours)
    return member_sensitivity(member_records * of_record(Neighbours.ADD_REMOVE), neighbours)


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
    factor = cut_factor(float(np.linalg.norm(vector * weights)), vector.size, bound)
    if factor == 1:
        return vector
    clipped: Integers = np.trunc(vector * factor).astype(np.int64)
    return clipped


def cut_factor(norm: float, elements: int, bound: float) -> float:
    """What a vector of so many elements, of this norm by floating point, is multiplied by so that its norm is at most `bound`: 1 or less."""
    # The sum of n squares is off by (n + 4)·eps at most, whatever its order.
    surely = norm * (1 + (elements + 4) * _EPS)
    return 1.0 if surely <= bound else bound / surely * (1 - 4 * _EPS)


def _replaced(first: float, second: float, counts: float, *, constant: float, nonnegative: bool) -> float:
    """Δ² of a replacement, by weights² of U, V and counts: the greater of equal labels and of others."""
    least = 0.0 if nonnegative else constant - 1
    apart = second * _moments(max(least, -constant), constant) + 2 * first + 2 * counts
    return max(apart, _same_label(first, second, constant, nonnegative=nonnegative))


def _same_label(first: float, second: float, constant: float, *, nonnegative: bool) -> float:
    """The largest first·2(s − ρ) + second·‖zzᵀ − z′z′ᵀ‖², s = 1 − κ, ρ from −s, or from 0, on."""
    least = 0.0 if nonnegative else constant - 1
    rho = max(least, -constant - first / (2 * second))
    return first * 2 * (1 - constant - rho) + second * _moments(rho, constant)


def _moments(rho: float, constant: float) -> float:
    """‖zzᵀ − z′z′ᵀ‖² at a·a′ = ρ, ‖a‖² = ‖a′‖² = 1 − κ."""
    s = 1 - constant
    return 2 * s**2 - 2 * rho**2 + 4 * constant * (s - rho)


def _check_weights(positive: float, other: float) -> None:
    if not (math.isfinite(positive) and positive > 0 and math.isfinite(other) and other >= 0):
        raise CalibrationError(
            f"weights are finite, those of features positive, those of counts not negative; got {positive!r}, {other!r}"
        )
