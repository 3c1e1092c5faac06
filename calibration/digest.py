"""Names for records that come without ids."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibration.rows import Floats, Integers

_TAG = b"veilsum calibration record 2 "


def digests_of(rows: Floats, labels: Integers) -> list[bytes]:
    """SHA-256(tag ‖ row ‖ label) of each record.

    Args:
        rows: (n, l) float64 of length 1, −0.0 hashed as 0.0, little-endian.
        labels: (n,), hashed as 8 bytes.
    """
    canonical = (rows + 0.0).astype("<f8")
    tagged, digests = hashlib.sha256(_TAG), []
    for row, label in zip(canonical, labels.tolist(), strict=True):
        record = tagged.copy()
        record.update(row)
        record.update(label.to_bytes(8, "little"))
        digests.append(record.digest())
    return digests
