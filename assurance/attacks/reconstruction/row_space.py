"""Rows of non-negative features are corners of their own row space."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]

from veilsum.calibration.rows import Floats


def find_corners(moment: Floats, seed: int = 0) -> Floats:
    """Return corners of the non-negative vectors of length 1 in the range of Σzzᵀ: where each feature and random sums are largest."""
    values, vectors = np.linalg.eigh(moment)
    basis = vectors[:, values > 1e-7]
    if not basis.size:
        return np.empty((0, len(moment)))
    rng = np.random.default_rng(seed)
    goals = np.concatenate([np.eye(len(moment)), rng.standard_normal((len(moment), len(moment)))])
    found = []
    for goal in goals:
        solved = linprog(
            -(goal @ basis),
            A_ub=-basis,
            b_ub=np.full(len(basis), 1e-9),
            A_eq=basis.sum(axis=0)[None],
            b_eq=[1.0],
            bounds=(None, None),
        )
        if solved.status == 0:
            found.append(basis @ solved.x)
    return np.array(found).reshape(-1, len(moment))
