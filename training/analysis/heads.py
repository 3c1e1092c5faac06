"""How members' heads differ, and how many directions a head uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def head_norms(weights: Floats) -> Floats:
    """‖w_c‖ of each class at each member, (K, C), from heads (K, C, l) (Luo et al. 2021, Fig. 3)."""
    norms: Floats = np.linalg.norm(weights, axis=2)
    return norms


def direction_consistency(weights: Floats) -> float:
    """The mean cosine of one class's vectors at two different members (Dong et al. 2022, eq. 2), from heads (K, C, l).

    Raises:
        ValueError: if there is one member alone.
    """
    unit = weights / np.linalg.norm(weights, axis=2, keepdims=True)
    cosines = np.einsum("kcl,mcl->ckm", unit, unit)
    return float(cosines[:, _pairs(len(weights))].mean())


def norm_difference(weights: Floats) -> float:
    """The mean | ‖w_c^k‖ − ‖w_c^m‖ | over classes and two different members (Dong et al. 2022, eq. 3), from heads (K, C, l).

    Raises:
        ValueError: if there is one member alone.
    """
    norms = head_norms(weights)
    differences = np.abs(norms[:, None] - norms[None, :])
    return float(differences[_pairs(len(weights))].mean())


def singular_values(weights: Floats) -> Floats:
    """Of one head (C, l), descending: uneven data let the smaller ones vanish (Son et al. 2024, Fig. 1)."""
    values: Floats = np.linalg.svd(weights.astype(np.float64), compute_uv=False).astype(np.float64)
    return values


def _pairs(members: int) -> npt.NDArray[np.bool_]:
    if members < 2:
        raise ValueError("consistency is between members: it takes two or more")
    return ~np.eye(members, dtype=bool)
