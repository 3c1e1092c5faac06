"""How reliably an attacker can tell that a known record is in an exact sum, as `docs/assurance.md` states.

The attacker has a copy of the record with its class, and many records of the same population that were not summed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from veilsum.calibration import FFCStatistics
from veilsum.calibration.rows import Floats, Integers, unit_rows

JUDGED = 2_000
REFERENCE = 40_000


@cache
def moved(dim: int, classes: int, rows: int) -> float:
    """Return how many standard deviations apart the test scores summed records and others."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((classes, dim))
    directions = rng.standard_normal((dim, dim)) * np.arange(1, dim + 1) ** -0.5

    def drawn(records: int) -> tuple[Floats, Integers]:
        labels = rng.integers(0, classes, records)
        return unit_rows((rng.standard_normal((records, dim)) + means[labels]) @ directions)[0], labels

    inside, outside = drawn(rows), drawn(JUDGED)
    sums, known = FFCStatistics(dim, classes), FFCStatistics(dim, classes)
    sums.add(*inside)
    for _ in range(10):
        known.add(*drawn(REFERENCE // 10))
    expected, centres = known.V / REFERENCE, known.U / known.counts
    inverse = np.linalg.inv(expected)
    within = np.linalg.inv(expected - (centres * (known.counts / REFERENCE)) @ centres.T)

    def score(found: Floats, labels: Integers) -> Floats:
        """Weigh the excess of V along the row, and of the class's mean, by how much each reveals."""
        seen = found @ inverse
        excess = ((seen @ (sums.V / rows - expected)) * seen).sum(axis=1) / (seen * found).sum(axis=1)
        apart = found - centres.T[labels]
        towards = apart @ within
        shift = ((sums.U / sums.counts - centres).T[labels] * towards).sum(axis=1)
        told: Floats = dim / 2 * excess + np.sqrt(dim) * shift / np.sqrt((towards * apart).sum(axis=1))
        return told

    those, others = score(inside[0][:JUDGED], inside[1][:JUDGED]), score(*outside)
    return float((those.mean() - others.mean()) / others.std())


@pytest.mark.parametrize(
    ("dim", "classes", "rows"), [(32, 10, 858), (32, 10, 4 * 858), (64, 60, 24_000), (160, 4, 50 * 160)]
)
def test_a_usual_record_stands_out_by_the_root_of_numbers_over_rows(
    dim: int, classes: int, rows: int
) -> None:
    most = np.sqrt(FFCStatistics(dim, classes).layout.elements / rows)
    assert most / 2 < moved(dim, classes, rows) < 1.1 * most


def test_fifty_rows_a_dimension_hide_no_record_of_many_dimensions() -> None:
    assert moved(160, 4, 50 * 160) > 1
