"""A head from one's own records in one process: exact, without a study's limits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from veilsum.calibration import RandomFeatures
from veilsum.calibration.answer import Answer
from veilsum.calibration.rows import Array, as_array, as_features, check_rows, directions
from veilsum.protocol import study as content
from veilsum.protocol.study import After, CCVRHead, Statistic
from veilsum.study.answers import solved
from veilsum.study.vectors import Statistics, accumulator

_SEED = b"veilsum calibration alone".ljust(32, b"\0")


@dataclass(frozen=True, eq=False)
class Alone:
    """What was summed, and what follows from it."""

    statistics: Statistics
    answer: Answer


def alone(
    dim: int,
    classes: int,
    statistic: Statistic,
    batches: Iterable[tuple[Array, Array]],
    *,
    normalise: bool = False,
    ridge: float | Literal["gcv"] = "gcv",
    publish: tuple[Literal["lda", "ncm", "pooled", "posterior"], ...] = (),
    ccvr: CCVRHead | None = None,
) -> Alone:
    """Sum records and solve, as a study of this statistic would.

    Args:
        dim: features per record.
        classes: C.
        statistic: what is summed.
        batches: (n, dim) features and (n,) labels.
        normalise: accept rows of any length.
        ridge: λ, or "gcv" to choose it.
        publish: documents beside the head.
        ccvr: how CCVR's head is retrained.

    Raises:
        CalibrationError: as `FFCStatistics.update` for the records, and where nothing follows from them.
    """
    statistics, mapped = accumulator(statistic, dim, classes, _SEED)
    for features, labels in batches:
        matrix = as_features(features, dim)
        check_rows(matrix, normalise=normalise)
        statistics.update(mapped(directions(matrix)), as_array(labels))
    phi = None
    if isinstance(statistic, content.RandomFeaturesFFC):
        phi = RandomFeatures(dim, statistic.size, statistic.bandwidth, _SEED)
    after = After(ridge=ridge, publish=publish, readers="members", ccvr=ccvr)
    return Alone(statistics, solved({statistic.kind: statistics}, (statistic,), after, phi, _SEED))
