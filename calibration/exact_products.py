"""Products whose rows do not know of each other: under noise one record more must not change the last bit of any other's number.

A library adds up a product in another order, or with other roundings, if there is a row more. So both factors become whole numbers
first, small enough that whatever is added up, in whichever order, fused or not, is one too, and below 2^53: then float64 rounds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibration.rows import Floats

_ROW_BITS, _BITS = 24, 52


def exact_products(rows: Floats, columns: NDArray[Any]) -> Floats:
    """The products rows @ columns of factors rounded, (n, k): each row's numbers follow from that row and the columns alone.

    A row x of a greatest value of 1 becomes q, |q_i| ≤ 2^24, so ‖q‖ ≤ 2^24·√l; a column becomes a of length 2^c + √l/2 at most,
    c = 28 − ⌈½·log₂ l⌉. By Cauchy–Schwarz no part of Σ q_i·a_i exceeds 2^24·√l·(2^c + √l/2) ≤ 2^52 + 2^23·l, below 2^53.

    Args:
        rows: (n, l) finite, l below 2^29; those with a value beyond 1 are scaled by a power of two first.
        columns: (l, k) finite, of lengths that do not overflow.
    """
    column_bits = _BITS - _ROW_BITS - (len(columns).bit_length() + 1) // 2
    # powers of two: nothing but rounding to whole numbers changes a digit
    peaks = np.abs(rows).max(axis=1, initial=1.0)
    row_shift = _ROW_BITS - np.frexp(np.nextafter(peaks, 0))[1]
    column_shift = column_bits - np.frexp(np.linalg.norm(columns, axis=0))[1]
    whole = np.rint(np.ldexp(rows, row_shift[:, None])) @ np.rint(np.ldexp(columns, column_shift))
    products: Floats = np.ldexp(np.ldexp(whole, -column_shift), -row_shift[:, None])
    return products
