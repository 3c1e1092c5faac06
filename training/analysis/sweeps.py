"""Accuracy over a calibration's one hyper-parameter, such as FFC's λ or CCVR's number of virtual features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training.calibrating import calibrate
from training.results import Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from training.calibrating import Held


def sweep(
    kind: str,
    held: Held,
    z: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    parameter: str,
    values: Sequence[float],
    **options: Any,
) -> Sweep:
    """A calibration's accuracy on test records at each value: Dong et al. 2022, §C.1, of FFC's λ; Luo et al. 2021, Fig. 7, of M_c.

    Args:
        kind: one of `CALIBRATIONS`.
        held: members' features, which it is fitted to.
        z: test features as the head sees them, (n, l).
        labels: theirs, (n,).
        parameter: the option to vary, such as "ridge" or "per_class".
        values: what it is set to, in turn; an option that counts takes int.
        options: the others.

    Raises:
        KeyError, CalibrationError: as `calibrate`.
    """
    fitted = (calibrate(kind, held, **options | {parameter: value}) for value in values)
    return Sweep(
        kind=kind,
        parameter=parameter,
        values=tuple(values),
        accuracies=tuple(float((each.predict(z) == labels).mean()) for each in fitted),
    )
