from __future__ import annotations

import calibration
from calibration import errors


def test_every_error_is_a_calibration_error_and_a_value_error_and_is_exported() -> None:
    found = {name: thing for name, thing in vars(errors).items() if isinstance(thing, type)}
    assert len(found) == 18
    for name, error in found.items():
        assert issubclass(error, errors.CalibrationError)
        assert issubclass(error, ValueError)
        assert getattr(calibration, name) is error
        assert name in calibration.__all__


def test_the_public_surface_is_sorted_and_real() -> None:
    assert len(set(calibration.__all__)) == len(calibration.__all__)
    assert all(hasattr(calibration, name) for name in calibration.__all__)
