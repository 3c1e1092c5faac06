"""The layouts of the statistics that rounds sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.errors import LayoutMismatch
from calibration.layout import DenseBlock, Layout, SymmetricBlock


def ffc_layout(dim: int, classes: int, *, bias: bool = False) -> Layout:
    """The layout of FFC statistics: V (l, l) symmetric, U (l, C), n (C,), l = dim + bias.

    Raises:
        LayoutMismatch: `dim` or `classes` is not a whole number from 1.
    """
    # numpy's integers are welcome: labels.max() + 1 is one.
    sizes: tuple[Any, ...] = (dim, classes)
    dim, classes = (size.item() if isinstance(size, np.integer) else size for size in sizes)
    DenseBlock("z", (dim,))  # checked alone: 0 features and a bias would make a column
    rows = dim + bool(bias)
    return Layout((SymmetricBlock("V", rows), DenseBlock("U", (rows, classes)), DenseBlock("n", (classes,))))


def ffc_dimensions(layout: Layout, *, bias: bool) -> tuple[int, int]:
    """`dim` and `classes` of a layout that `ffc_layout` made.

    Raises:
        LayoutMismatch: any other layout.
    """
    match layout.blocks:
        case (SymmetricBlock("V", rows), DenseBlock("U", (_, classes)), DenseBlock("n", _)) if rows > bias:
            if layout == ffc_layout(rows - bool(bias), classes, bias=bias):
                return rows - bool(bias), classes
    raise LayoutMismatch("not a layout of FFC statistics; make it with ffc_layout(dim, classes, bias=…)")


def ccvr_layout(dim: int, classes: int) -> Layout:
    """The layout of CCVR statistics: n (C,), S (C, l), and for each class c the symmetric (l, l) second moment M.c.

    Raises:
        LayoutMismatch: `dim` or `classes` is not a whole number from 1.
    """
    blocks = (DenseBlock("n", (classes,)), DenseBlock("S", (classes, dim)))
    return Layout((*blocks, *(SymmetricBlock(f"M.{label}", dim) for label in range(classes))))
