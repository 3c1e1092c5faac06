"""Names for records, and for a set of records that needs neither their order nor all of them at once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from calibration.rows import Floats, Integers

MODULUS = 2**256
SHORT_BYTES = 16

_TAG = b"veilsum calibration record 2 "


def digests_of(rows: Floats, labels: Integers) -> list[bytes]:
    """SHA-256(tag ‖ row ‖ label) of each record.

    Args:
        rows: (n, l) float64 of length 1, before any lattice or constant column, so that a record has one name in every
            round; −0.0 hashed as 0.0, little-endian.
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


def sum_of_digests(digests: Iterable[bytes]) -> int:
    """Digests as numbers, added up; take it modulo `MODULUS`."""
    return sum(int.from_bytes(digest, "little") for digest in digests)
