"""A name for a set of records that needs neither their order nor all of them at once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibration.rows import Integers

MODULUS = 2**256

_TAG = b"veilsum calibration record 1 "


def sum_of_digests(rows: NDArray[Any], labels: Integers) -> int:
    """The sum of SHA-256(tag ‖ type ‖ row ‖ label) over records; add it up modulo `MODULUS`.

    Args:
        rows: (n, l), float64 hashed as such (−0.0 as 0.0), integers as int32; little-endian everywhere.
        labels: (n,), hashed as 8 bytes.
    """
    canonical = (rows + 0.0).astype("<f8") if rows.dtype.kind == "f" else rows.astype("<i4")
    tagged = hashlib.sha256(_TAG + canonical.dtype.str.encode())
    total = 0
    for row, label in zip(canonical, labels.tolist(), strict=True):
        record = tagged.copy()
        record.update(row)
        record.update(label.to_bytes(8, "little"))
        total += int.from_bytes(record.digest(), "little")
    return total
