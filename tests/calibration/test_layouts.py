from __future__ import annotations

import numpy as np
import pytest

from calibration import (
    DenseBlock,
    FFCStatistics,
    Layout,
    LayoutMismatch,
    SumsLattice,
    SymmetricBlock,
    check_sums,
    ffc_layout,
)
from calibration.layouts import ffc_dimensions


@pytest.mark.parametrize("bias", [False, True])
def test_dimensions_are_read_back(*, bias: bool) -> None:
    layout = ffc_layout(7, 3, bias=bias)
    assert ffc_dimensions(layout, bias=bias) == (7, 3)
    assert layout.blocks[0] == SymmetricBlock("V", 7 + bias)


@pytest.mark.parametrize(
    ("layout", "bias"),
    [
        (ffc_layout(1, 2), True),  # nothing would be left beside the constant
        (Layout((SymmetricBlock("V", 2),)), False),
        (Layout((SymmetricBlock("V", 2), DenseBlock("U", (2, 2)), DenseBlock("n", (3,)))), False),
        (Layout((SymmetricBlock("V", 2), DenseBlock("U", (3, 2)), DenseBlock("n", (2,)))), False),
        (Layout((SymmetricBlock("V", 2), DenseBlock("W", (2, 2)), DenseBlock("n", (2,)))), False),
    ],
)
def test_sums_of_something_else_are_refused(*, layout: Layout, bias: bool) -> None:
    vector = np.zeros(layout.elements, np.int64)
    with pytest.raises(LayoutMismatch, match="make it with ffc_layout"):
        FFCStatistics.from_sums(layout, SumsLattice(4), vector, bias=bias)
    with pytest.raises(LayoutMismatch, match="make it with ffc_layout"):
        check_sums(layout, SumsLattice(4), vector, members=1, bias=bias)
