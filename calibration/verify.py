"""Check a claimed solution for a small part of what solving costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import NonFinite, ShapeMismatch, SolutionCheckFailed

if TYPE_CHECKING:
    from calibration.rows import Floats


def check_solution(
    V: Floats,
    U: Floats,
    ridge: float,
    W: Floats,
    rng: np.random.Generator,
    *,
    rounds: int = 3,
    tolerance: float = 1e-10,
) -> None:
    """Check (V + λI)W = U by Freivalds' method: on random combinations of the columns.

    A round draws x ~ N(0, I_C) and compares (V + λI)(Wx) with Ux in O(l² + lC). Normal x see an error
    in any column or set of columns; ±1 would miss two errors that cancel half of the time. What is
    bounded is the residual: where V + λI is ill-conditioned, weights can move further than it tells.

    Args:
        V: (l, l).
        U: (l, C).
        ridge: λ.
        W: (l, C) claimed weights in the solved space (`Solution.raw_weights`).
        rng: the verifier's own randomness; whoever knows it in advance can pass with false weights.
        rounds: independent repetitions.
        tolerance: residual allowed, relative to ‖V‖_F‖Wx‖ + λ‖Wx‖ + ‖Ux‖.

    Raises:
        SolutionCheckFailed: the equations do not hold.
        ShapeMismatch: shapes that do not belong together.
        NonFinite: NaN or infinity in V, U, λ or W.
    """
    dim = len(V)
    if V.shape != (dim, dim) or U.shape != W.shape or len(U) != dim or U.ndim != 2 or rounds < 1:
        raise ShapeMismatch(
            f"V {V.shape}, U {U.shape}, W {W.shape}, {rounds} rounds; pass (l, l), (l, C), (l, C), at least 1"
        )
    X = rng.standard_normal((U.shape[1], rounds))
    WX, UX = W @ X, U @ X
    residuals = np.linalg.norm(V @ WX + ridge * WX - UX, axis=0)
    scales = (np.linalg.norm(V) + ridge) * np.linalg.norm(WX, axis=0) + np.linalg.norm(UX, axis=0)
    if not np.isfinite(residuals).all() or not np.isfinite(scales).all():
        raise NonFinite("V, U, the ridge or the weights hold NaN or infinity")
    worst = float((residuals - tolerance * scales).max())
    if worst > 0:
        raise SolutionCheckFailed(
            f"the weights miss the equations by {(residuals / scales).max():.3g} of their size, "
            f"{tolerance:g} is tolerated; do not use them"
        )
