from __future__ import annotations

import numpy as np
import pytest

from calibration import DenseBlock, Layout, LayoutMismatch, SumCheckFailed, SumsLattice
from calibration.sums import RecordSums

LAYOUT = Layout((DenseBlock("x", (2,)), DenseBlock("n", (1,))))


def test_sums_of_vectors_are_decoded_and_added() -> None:
    sums = RecordSums(LAYOUT)
    for _ in range(2):
        sums.add_sums(SumsLattice(3), np.array([8, -4, 16]), members=3)
    assert sums.block("x").tolist() == [2.0, -1.0]
    assert sums.records == 4
    assert sums.rounding_deviation == pytest.approx(np.sqrt(2 * 3 / 12) / 8)
    assert repr(sums) == "<RecordSums 4 records, 3 elements>"
    with pytest.raises(ValueError, match="read-only"):
        sums.block("x")[0] = 1
    assert (sums + sums).records == 8


def test_sums_that_no_records_give_are_refused() -> None:
    for vector, identity in (([8, 0, 12], "counts"), ([8, 0, -8], "counts"), ([10, 0, 8], "range")):
        with pytest.raises(SumCheckFailed) as caught:
            RecordSums(LAYOUT).add_sums(SumsLattice(3), np.array(vector), members=1)
        assert caught.value.identity == identity
    with pytest.raises(LayoutMismatch):
        RecordSums(LAYOUT).add_sums(SumsLattice(3), np.array([8, 0]))
    empty = RecordSums(LAYOUT)
    empty.add_sums(SumsLattice(3), np.zeros(3, np.int64))
    assert empty.records == 0
