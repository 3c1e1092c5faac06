"""What can be wrong with features, sums and solutions, as one small tree.

CalibrationError
├── WrongDtype, ShapeMismatch, LabelOutOfRange            the arrays that were passed in
├── NonFinite, ZeroRow, NotUnitNorm, NormExceeded         their rows, named in ``rows``
├── LayoutMismatch, LatticeMismatch, ConfigMismatch       things that do not belong together
├── HeadroomExceeded                                      integers that would overflow
├── NoRecords, SingularSystem                             nothing to compute from
├── NoiseTooSmall                                         noise that would be too coarse
└── SumCheckFailed, SolutionCheckFailed                   the coordinator's or a member's sums are false
"""

# ruff: noqa: N818 - each name says what is wrong; the base class says that it is an error

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CalibrationError(ValueError):
    """Base of every error that this package raises on purpose."""


class WrongDtype(CalibrationError):
    """An array holds another kind of number than the operation needs."""


class ShapeMismatch(CalibrationError):
    """An array has another shape than the statistics."""


class LabelOutOfRange(CalibrationError):
    """A label is negative or not below the number of classes."""


class RowError(CalibrationError):
    """Some rows of a batch are unusable.

    Attributes:
        rows: indices into the batch of the first offending rows.
    """

    def __init__(self, message: str, *, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class NonFinite(RowError):
    """A value is NaN or infinite."""


class ZeroRow(RowError):
    """A feature vector is zero: it has no direction, so it can't be normalised."""


class NotUnitNorm(RowError):
    """A feature vector is not of length 1 and normalisation was not asked for."""


class NormExceeded(RowError):
    """A feature vector is longer than the bound that the round's terms state."""


class LayoutMismatch(CalibrationError):
    """Blocks or a vector do not fit a layout."""


class LatticeMismatch(CalibrationError):
    """A statistic was asked for on a lattice it was not accumulated on, or a lattice is unknown."""


class ConfigMismatch(CalibrationError):
    """Two statistics were accumulated under different settings."""


class HeadroomExceeded(CalibrationError):
    """A sum could leave the integers that represent it exactly."""


class NoRecords(CalibrationError):
    """The statistics are empty."""


class SingularSystem(CalibrationError):
    """V + λI can't be inverted in float64 for the λ that was asked for."""


class NoiseTooSmall(CalibrationError):
    """A member's share of the noise would be too coarse for what is promised of it.

    Attributes:
        variance: what it would be, in squared grid steps.
    """

    def __init__(self, message: str, *, variance: int) -> None:
        super().__init__(message)
        self.variance = variance


class SumCheckFailed(CalibrationError):
    """A sum violates an identity that every honest sum fulfils.

    Attributes:
        identity: the name of the violated identity, such as ``"trace"``.
    """

    def __init__(self, message: str, *, identity: str) -> None:
        super().__init__(f"{identity}: {message}")
        self.identity = identity


class SolutionCheckFailed(CalibrationError):
    """Claimed weights do not solve the normal equations."""
