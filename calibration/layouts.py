"""The layouts of the statistics that rounds sum."""

from __future__ import annotations

from dataclasses import replace
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


def fold_layout(dim: int, classes: int, folds: int, *, bias: bool = False) -> Layout:
    """The layout of K folds of FFC statistics, one after the other: V.0, U.0, n.0, V.1 and so on.

    Raises:
        LayoutMismatch: as `ffc_layout`; fewer than 2 folds.
    """
    if folds < 2:
        raise LayoutMismatch(f"cross-validation needs at least 2 folds, not {folds}")
    blocks = ffc_layout(dim, classes, bias=bias).blocks
    return Layout(
        tuple(replace(block, name=f"{block.name}.{fold}") for fold in range(folds) for block in blocks)
    )


def ccvr_layout(dim: int, classes: int) -> Layout:
    """The layout of CCVR statistics: n (C,), S (C, l), and for each class c the symmetric (l, l) second moment M.c.

    Raises:
        LayoutMismatch: `dim` or `classes` is not a whole number from 1.
    """
    blocks = (DenseBlock("n", (classes,)), DenseBlock("S", (classes, dim)))
    return Layout((*blocks, *(SymmetricBlock(f"M.{label}", dim) for label in range(classes))))
