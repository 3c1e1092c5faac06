from __future__ import annotations

import hashlib

import numpy as np

from calibration.digest import digests_of


def test_a_record_s_name_is_the_hash_of_its_row_and_label() -> None:
    rows, labels = np.array([[1.0, -0.0], [0.0, 1.0]]), np.array([0, 1])
    tag = b"veilsum calibration record 2 "
    records = [
        tag + np.array([1.0, 0.0], "<f8").tobytes() + bytes(8),
        tag + np.array([0.0, 1.0], "<f8").tobytes() + b"\1" + bytes(7),
    ]
    expected = [hashlib.sha256(record).digest() for record in records]
    assert digests_of(rows, labels) == expected
    assert digests_of(rows[::-1], labels[::-1]) == expected[::-1]
