"""Accuracy over a calibration's one hyper-parameter: FFC's λ, CCVR's number of virtual features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration import CCVRStatistics, FFCStatistics, solve_ccvr, solve_ffc
from training.results import Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Features = npt.NDArray[np.floating]
    Labels = npt.NDArray[np.int64]


def ridge_sweep(statistics: FFCStatistics, z: Features, labels: Labels, ridges: Sequence[float]) -> Sweep:
    """FFC's accuracy on test features z, (n, l), for each λ (Dong et al. 2022, §C.1)."""
    return Sweep(
        kind="ffc",
        parameter="ridge",
        values=tuple(ridges),
        accuracies=tuple(
            float((solve_ffc(statistics, ridge=ridge).predict(z) == labels).mean()) for ridge in ridges
        ),
    )


def virtual_sweep(
    statistics: CCVRStatistics, z: Features, labels: Labels, counts: Sequence[int], *, seed: int = 0
) -> Sweep:
    """CCVR's accuracy on test features z, (n, l), for each number M_c of virtual features a class (Luo et al. 2021, Fig. 7)."""
    heads = (solve_ccvr(statistics, np.random.default_rng(seed), per_class=count) for count in counts)
    return Sweep(
        kind="ccvr",
        parameter="virtual",
        values=tuple(map(float, counts)),
        accuracies=tuple(float((head.predict(z) == labels).mean()) for head in heads),
    )
