"""Features less a mean that everybody knows: under noise the shared direction costs most of what a sum can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibration.head import Head
from calibration.rows import Array, Floats, as_features, check_rows, unit_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class CentredHead(Head):
    """A head on (z − m)/‖z − m‖, z of length 1."""

    centre: Floats
    """(dim,) m, ‖m‖ ≤ 1."""

    def rows(self, features: Array, *, normalise: bool = False, total: bool = False) -> Floats:
        """The (n, dim) rows that the weights are applied to; CalibrationError as `Head.rows`, and for a row that is m."""
        matrix = as_features(features, self.dim)
        check_rows(matrix, normalise=normalise)
        return centred(matrix, self.centre, total=total)


def centred(matrix: NDArray, centre: Floats, *, total: bool = False) -> Floats:  # type: ignore[type-arg]
    """(z − m)/‖z − m‖ of (n, dim) rows scaled to length 1, float64; with `total` the first unit vector where z is m.

    Raises:
        ZeroRow: a row without direction, or, without `total`, one that is m.
    """
    rows, _ = unit_rows(matrix)
    unit, _ = unit_rows(rows - centre, total=total)
    return unit
