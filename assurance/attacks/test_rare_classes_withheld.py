"""What a class's sum of random features reveals, and that such a class is withheld."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from tests.study.specs import content_of, whole
from veilsum.calibration import RandomFeatures
from veilsum.calibration.rows import Floats, unit_rows
from veilsum.protocol.counting import withheld_classes

DIM, SIZE, ROWS = 16, 256, 3


def solved(sums: Floats, phi: RandomFeatures, rows: int, seed: int) -> Floats:
    """Find rows whose φ add up to `sums`, by the Levenberg–Marquardt method."""
    omega, scale = phi.directions, np.sqrt(2 / phi.size)

    def missed(flat: Floats) -> Floats:
        found = flat.reshape(rows, phi.dim)
        angles = found @ omega.T
        apart = scale * np.stack([np.cos(angles), np.sin(angles)], axis=2).sum(axis=0).ravel() - sums
        return np.concatenate([apart, (found**2).sum(axis=1) - 1])

    start = unit_rows(np.random.default_rng(seed).standard_normal((rows, phi.dim)))[0]
    ended: Floats = least_squares(missed, start.ravel(), method="lm").x
    return ended.reshape(rows, phi.dim)


def test_a_class_of_few_rows_would_be_given_back_and_is_withheld() -> None:
    rng = np.random.default_rng(0)
    phi = RandomFeatures(DIM, SIZE, 0.7, bytes(32))
    rows = unit_rows(rng.standard_normal((ROWS, DIM)))[0]
    found = solved(phi.of_units(rows).sum(axis=0), phi, ROWS, 1)
    assert np.linalg.norm(found[:, None] - rows, axis=2).min(axis=0) == pytest.approx(
        np.zeros(ROWS), abs=1e-6
    )
    # Four honest holders with 9 rows each have two unknowns for each of the 257 sums; a = 3 and r = 3.
    records = {"least": 2_000, "most": 20_000, "least_per_class": 9, "rows_per_id": 1}
    kernel = {"kind": "random-features", "size": SIZE, "bandwidth": 0.7}
    question = content_of(whole(statistics=[kernel], records=records)).question
    assert withheld_classes(question, [10, 9]) == (1,)
