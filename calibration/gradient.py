"""One step of a logistic head: the records' clipped gradients added up, and the weights moved against them.

With p = softmax(Wᵀz′) a record's gradient of −log p_y is z′·rᵀ, r = p − one_hot(y). ‖z′‖ = 1, so clipping r clips the gradient.
Steps are preconditioned by the inverse of second moments that an earlier round has summed, noise taken off: DP-FC (Mehta et
al. 2023). The Hessian is nowhere above ½V (Böhning 1992), so a step of 2·V⁻¹ never overshoots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError
from calibration.exact_products import exact_products
from calibration.head import Head, check_weights, log_softmax
from calibration.moments import IntegerSums

if TYPE_CHECKING:
    from calibration.lattice import FeaturesLattice
    from calibration.layout import Layout
    from calibration.rows import Floats, Integers

_SQRT_HALF = math.sqrt(0.5)
_CONFIDENCE = 0.9


class GradientSums(IntegerSums):
    """G = Σ z′·r′ᵀ, (l, C) with l = dim + bias, r′ = r/max(c, ‖r‖), of integer rows z′ and r′: a record adds at most 1 to ‖G‖.

    Args:
        layout: G.
        lattice: of the round.
        head: linear, or linear on centred features.
        clip: c; r is no longer than √2.

    Raises:
        CalibrationError: a clip that is not above 0 and finite; weights that scores could overflow by, whatever the records: what is
            no number has no bound, and no noise would cover it.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, head: Head, *, clip: float) -> None:
        if not 0 < clip < math.inf:
            raise CalibrationError(f"gradients are clipped to a length above 0, not to {clip!r}")
        check_weights(head)
        super().__init__(layout, lattice, head.classes, head.dim)
        self._head, self._clip = head, clip

    def _add(self, rows: Floats, labels: Integers) -> None:
        mapped = self._head.rows(rows, normalise=True, total=True)
        scores = exact_products(mapped, self._head.weights)
        scores += 0.0 if self._head.bias is None else self._head.bias
        scores[:, list(self._head.empty_classes)] = -np.inf
        residuals = np.exp(log_softmax(scores))
        residuals[np.arange(len(labels)), labels] -= 1
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), self._clip)
        whole = self.lattice.encode_rows(mapped, bias=self._head.bias is not None).astype(np.float64)
        gradient = (whole.T @ self.lattice.encode_bounded(residuals)).astype(np.int64)
        self.part("G")[:] += gradient.ravel()


def logistic_start(head: Head) -> Head:
    """A ridge head as a logistic one: scaled so that scores of 1 and 0, which ridge aims at, give the class 0.9."""
    scale = math.log(_CONFIDENCE / (1 - _CONFIDENCE) * max(1, head.classes - 1))
    return _with(head, head.weights * scale, None if head.bias is None else head.bias * scale)


def stepped(head: Head, gradient: Floats, inverse: Floats, step: float) -> Head:
    """The head after W ← W − step·V⁻¹G.

    Args:
        head: that the gradients are of.
        gradient: (l, C) G, not divided by the clip.
        inverse: (l, l) V⁻¹.
        step: 2 or less.
    """
    change = -step * (inverse @ gradient)
    if head.bias is None:
        return _with(head, head.weights + change, None)
    return _with(head, head.weights + change[:-1] * _SQRT_HALF, head.bias + change[-1] * _SQRT_HALF)


def _with(head: Head, weights: Floats, bias: Floats | None) -> Head:
    return replace(head, weights=np.ascontiguousarray(weights), bias=bias)
