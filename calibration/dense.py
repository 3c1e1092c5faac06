"""Factorisations of symmetric matrices, those of large ones in little memory where scipy is at hand.

numpy's `eigh` takes four times the matrix beside it, and its Cholesky twice: copies that LAPACK works in and that come back. scipy works in
the matrix itself, and its driver by relatively robust representations (Dhillon, Parlett 2004) needs the eigenvectors' memory and no more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.layout import mirror

if TYPE_CHECKING:
    from calibration.rows import Floats

LARGE = 2048
"""Rows from which on memory counts: 34 MB."""


def eigh(V: Floats, *, in_place: bool = False) -> tuple[Floats, Floats]:
    """V = QDQᵀ: D ascending, (l,), and Q, (l, l).

    Args:
        V: (l, l), symmetric.
        in_place: let a large V be worked in; it has to be symmetric to the last bit, and is as it was afterwards.
    """
    linalg = _scipy(len(V))
    if linalg is None:
        values, vectors = np.linalg.eigh(V)
        return values, vectors
    work = V if in_place else V.copy()
    diagonal = work.diagonal().copy()
    try:
        # LAPACK counts by columns: what it calls the upper triangle is our lower one, and the only one that it touches.
        values, vectors = linalg.eigh(work.T, lower=False, overwrite_a=True, check_finite=False, driver="evr")
    finally:
        if in_place:
            np.fill_diagonal(V, diagonal)
            mirror(V)
    return values, vectors


def is_definite(matrix: Floats) -> bool:
    """Whether a symmetric (n, n) matrix is positive definite, by Cholesky's algorithm; a large matrix is worked in, and lost."""
    linalg = _scipy(len(matrix))
    try:
        if linalg is None:
            np.linalg.cholesky(matrix)
        else:
            linalg.cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _scipy(rows: int) -> Any | None:
    """Its `linalg` for a large matrix; None where numpy will do, or has to."""
    if rows < LARGE:
        return None
    try:
        return importlib.import_module("scipy.linalg")
    except ImportError:
        return None
