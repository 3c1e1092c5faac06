"""Errors of this package: each is a `CalibrationError`, and that is a `ValueError`."""

# ruff: noqa: N818 - each name says what is wrong; the base class says that it is an error


class CalibrationError(ValueError):
    """Base of every error that this package raises on purpose."""


class WrongDtype(CalibrationError):
    """An array has the wrong dtype."""


class ShapeMismatch(CalibrationError):
    """An array has the wrong shape."""


class LabelOutOfRange(CalibrationError):
    """A label is negative or not below the number of classes."""


class NonFinite(CalibrationError):
    """A value is NaN or infinite."""


class ZeroRow(CalibrationError):
    """A feature vector is zero, so it has no direction."""


class NotUnitNorm(CalibrationError):
    """A feature vector does not have length 1, and `normalise` is off."""


class NormExceeded(CalibrationError):
    """A feature vector is longer than the norm bound."""


class LayoutMismatch(CalibrationError):
    """Blocks or a vector do not fit a layout."""


class LatticeMismatch(CalibrationError):
    """A lattice has too few or too many bits."""


class ConfigMismatch(CalibrationError):
    """Two statistics were accumulated under different settings."""


class HeadroomExceeded(CalibrationError):
    """A value does not fit into int64 on this lattice."""


class NoRecords(CalibrationError):
    """The statistics hold too few records."""


class SingularSystem(CalibrationError):
    """V + λI can't be inverted in float64."""


class NoiseTooSmall(CalibrationError):
    """A member's share of the noise is too coarse for the proof to hold."""


class SumCheckFailed(CalibrationError):
    """A sum violates an identity that every honest sum fulfils, such as "trace"."""

    def __init__(self, message: str, *, identity: str) -> None:
        super().__init__(f"{identity}: {message}")
        self.identity = identity


class SolutionCheckFailed(CalibrationError):
    """Claimed weights do not solve the normal equations."""
