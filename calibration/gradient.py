"""One step of a logistic head: the records' clipped gradients added up, and the weights moved against them.

With p = softmax(Wᵀz′) a record's gradient of −log p_y is z′·rᵀ, r = p − one_hot(y). ‖z′‖ = 1, so clipping r clips the gradient.
Steps are preconditioned by the inverse of second moments that an earlier round has summed, noise taken off: DP-FC (Mehta et
al. 2023). The Hessian is nowhere above ½V (Böhning 1992), so a step of 2·V⁻¹ never overshoots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.errors import CalibrationError
from calibration.exact_products import exact_products
from calibration.head import Head, check_weights, log_softmax
from calibration.lattice import FeaturesLattice
from calibration.layout import in_pieces
from calibration.rows import as_features, as_labels, check_rows, row_blocks, with_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.lattice import SumsLattice
    from calibration.rows import Array, Floats, Integers

_SQRT_HALF = math.sqrt(0.5)
_CONFIDENCE = 0.9


class GradientStatistics:
    """G = Σ z′·r′ᵀ, (l, C) with l = dim + bias, r′ = r/max(c, ‖r‖): a record adds at most 1 to ‖G‖, in integers too.

    Args:
        head: linear, or linear on centred features.
        clip: c; r is no longer than √2.
        lattice: sum integer rows z′ and r′; float64 where None.
        total: as `Head.rows`.

    Raises:
        CalibrationError: a clip that is not above 0 and finite; weights that scores could overflow by, whatever the records: what is
            no number has no bound, and no noise would cover it.
    """

    def __init__(
        self, head: Head, *, clip: float, lattice: FeaturesLattice | None = None, total: bool = False
    ) -> None:
        if not 0 < clip < math.inf:
            raise CalibrationError(f"gradients are clipped to a length above 0, not to {clip!r}")
        check_weights(head)
        self.head, self.clip, self.lattice, self.records = head, clip, lattice, 0
        self._total_map = total
        shape = head.dim + (head.bias is not None), head.classes
        self.total: Any = np.zeros(shape, np.float64 if lattice is None else np.int64)

    def update(self, features: Array, labels: Array, *, normalise: bool = False) -> None:
        """Add a batch; nothing of it is added if anything about it is refused.

        Args:
            features: (n, dim).
            labels: (n,).
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `FFCStatistics.update`.
        """
        matrix = as_features(features, self.head.dim)
        indices = as_labels(labels, len(matrix), self.head.classes)
        check_rows(matrix, normalise=normalise)
        most = max(1, len(matrix))
        if self.lattice is not None:
            self.lattice.check_sum(self.records + len(matrix))
            most = self.lattice.exact_rows
        total = np.zeros_like(self.total)
        for block in row_blocks(len(matrix), max(self.total.shape), most):
            rows = self.head.rows(matrix[block], normalise=True, total=self._total_map)
            total += self._gradient(rows, indices[block])
        self.total += total
        self.records += len(matrix)

    def _gradient(self, rows: Floats, labels: Integers) -> Any:
        scores = exact_products(rows, self.head.weights) if self._total_map else rows @ self.head.weights
        scores += 0.0 if self.head.bias is None else self.head.bias
        scores[:, list(self.head.empty_classes)] = -np.inf
        residuals = np.exp(log_softmax(scores))
        residuals[np.arange(len(labels)), labels] -= 1
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), self.clip)
        bias = self.head.bias is not None
        if self.lattice is None:
            return (with_constant(rows, _SQRT_HALF) if bias else rows).T @ residuals
        whole = self.lattice.encode_rows(rows, bias=bias).astype(np.float64)
        return (whole.T @ self.lattice.encode_bounded(residuals)).astype(np.int64)

    def vector(self, lattice: SumsLattice | FeaturesLattice) -> Integers:
        """(l·C + 1,) int64: G and the number of records.

        Raises:
            CalibrationError: as `SumsLattice.encode`.
        """
        flat = self.total.ravel()
        if isinstance(lattice, FeaturesLattice):
            return np.append(flat, self.records)
        return lattice.encode(np.append(flat, float(self.records)))

    def pieces(self, lattice: SumsLattice | FeaturesLattice, elements: int) -> Iterator[Integers]:
        """`vector` in pieces of so many elements."""
        return in_pieces(self.vector(lattice), elements)


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
