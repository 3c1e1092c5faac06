"""A member's own head beside everybody's: its sums mixed with the pooled ones that a round published to its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibration import FFCStatistics
from calibration import personalise as mixed
from calibration.personal import WEIGHTS
from client_sdk.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration import Personal
    from client_sdk.result import Result
    from client_sdk.supply import Records


def personalise(
    result: Result, own: Records, held_out: Records, weights: Sequence[float] = WEIGHTS
) -> Personal:
    """As `Result.personalise`."""
    ridge = result.record.solution.ridge
    if "pooled" not in result.documents or ridge is None:
        raise Misuse(
            "a personal head needs the pooled sums, which this round does not publish to its members: "
            "ask for an ffc round with publish=pooled"
        )
    arrays = result.arrays("pooled")
    pooled = FFCStatistics.from_blocks(
        arrays["V"], arrays["U"], arrays["counts"], bias=bool(result.notes("pooled")["bias"])
    )
    statistics = FFCStatistics(
        pooled.dim, pooled.classes, bias=pooled.bias, normalise=own.normalise, track_records=False
    )
    statistics.update(own.features, own.labels)
    return mixed(
        pooled,
        statistics,
        held_out.features,
        held_out.labels,
        ridge=ridge,
        weights=weights,
        normalise=held_out.normalise,
    )
