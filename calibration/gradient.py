"""One step of a logistic head: the weights moved against the summed gradients of the records.

With p = softmax(Wᵀx + b) a record's gradient of −log p_y is x·rᵀ, r = p − one_hot(y). Steps are preconditioned by the inverse of second
moments that an earlier step has summed, noise taken off: DP-FC (Mehta et al. 2023). The Hessian is nowhere above ½V (Böhning 1992), so
a step of 2·V⁻¹ never overshoots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.rows import Floats

_SQRT_HALF = math.sqrt(0.5)
_CONFIDENCE = 0.9
_STEP = 2.0


def logistic_start(head: Head) -> Head:
    """A ridge head as a logistic one: scaled so that scores of 1 and 0, which ridge aims at, give the class 0.9."""
    scale = math.log(_CONFIDENCE / (1 - _CONFIDENCE) * max(1, head.classes - 1))
    return _with(head, head.weights * scale, None if head.bias is None else head.bias * scale)


def stepped(head: Head, gradient: Floats, inverse: Floats) -> Head:
    """The head after W ← W − 2·V⁻¹G.

    Args:
        head: that the gradients are of.
        gradient: (l, C) G.
        inverse: (l, l) V⁻¹.
    """
    change = -_STEP * (inverse @ gradient)
    if head.bias is None:
        return _with(head, head.weights + change, None)
    return _with(head, head.weights + change[:-1] * _SQRT_HALF, head.bias + change[-1] * _SQRT_HALF)


def _with(head: Head, weights: Floats, bias: Floats | None) -> Head:
    return replace(head, weights=np.ascontiguousarray(weights), bias=bias)
