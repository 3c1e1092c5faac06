"""Range checks of hyper-parameters. Each raises ValueError with the first value outside its range; NaN and infinity always are."""

from math import inf


def check_positive(**values: float) -> None:
    """Check for (0, ∞)."""
    for name, value in values.items():
        if not 0 < value < inf:
            raise ValueError(f"{name} must be positive and finite, not {value}")


def not_negative(**values: float) -> None:
    """Check for [0, ∞)."""
    for name, value in values.items():
        if not 0 <= value < inf:
            raise ValueError(f"{name} must be finite and not negative, not {value}")


def below_one(**values: float) -> None:
    """Check for [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), not {value}")


def check_fraction(**values: float) -> None:
    """Check for [0, 1]."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], not {value}")
