"""Random Fourier features: ridge in the space of a Gaussian kernel, again from sums (Fed3R-RF: Fanì et al. 2024).

φ(z) = √(2/D)·cos(Ωz + b), Ω ~ N(0, 1/σ²) (Rahimi and Recht 2007), with both b = 0 and b = −π/2 for each of D/2 rows of Ω instead of one
random b for each of D. Products of pairs estimate the same kernel, exp(−‖z − z'‖²/2σ²), with less variance (Sutherland and Schneider 2015),
and every φ(z) has length 1, on which the checks and the headroom rest.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import CalibrationError, NoRecords, ShapeMismatch
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head
from veilsum.calibration.lattice import exact_products
from veilsum.calibration.ridge import Solution, solve_ffc
from veilsum.calibration.rows import (
    FEATURES_FACTOR,
    Array,
    Floats,
    as_features,
    check_rows,
    row_blocks,
    unit_directions,
    unit_rows,
)

Ridges = float | Sequence[float] | NDArray[np.floating] | None

_DIRECTIONS_TAG = b"veilsum calibration random features 1 "
_NUMBERS_MAX = 1 << 27  # l·D: half a gigabyte of Ω


@dataclass(frozen=True)
class RandomFeatures:
    """The map φ, which follows from its four parameters.

    Args:
        dim: l, features per record.
        size: D, random features per record, even.
        bandwidth: σ of the kernel, from 1e-3 to 1e3, so that no angle overflows.
        seed: the digest of the study's question. Ω follows from it by SHAKE-256 and Box and Muller's transform (member: Exact vectors).

    Raises:
        CalibrationError: an odd size, or a number outside its domain.
    """

    dim: int
    size: int
    bandwidth: float
    seed: bytes

    def __post_init__(self) -> None:
        if self.dim < 1 or self.size < 2 or self.size % 2 or not 1e-3 <= self.bandwidth <= 1e3:
            raise CalibrationError(
                f"random features need dim ≥ 1, an even size ≥ 2 and a bandwidth from 1e-3 to 1e3, not "
                f"{self.dim}, {self.size} and {self.bandwidth!r}"
            )
        if self.dim * self.size > _NUMBERS_MAX:
            raise CalibrationError(
                f"{self.size} random features of {self.dim} features take {self.dim * self.size // 2} normals, "
                f"at most {_NUMBERS_MAX // 2} are drawn"
            )
        normals = _draw_normals(self.seed, self.size // 2, self.dim)
        object.__setattr__(self, "_directions", normals / self.bandwidth)

    @property
    def directions(self) -> Floats:
        """Ω, (D/2, dim). Under one seed, the smaller of two sizes has the first rows of the larger."""
        directions: Floats = vars(self)["_directions"]
        return directions

    def __call__(self, features: Array, *, normalise: bool = False) -> Floats:
        """Scale rows to length 1 and map them, (n, D) float64 of length 1: cos and sin of each row of Ω, side by side.

        Arguments and errors as `Head.rows`.
        """
        matrix = as_features(features, self.dim)
        check_rows(matrix, normalise=normalise)
        return self.of_units(unit_rows(matrix)[0])

    def of_units(self, rows: Floats, *, apart: bool = False) -> Floats:
        """Map (n, dim) rows of length 1; with `apart` each row's bits follow from that row alone (`exact_products`)."""
        mapped = np.empty((len(rows), self.size))
        for block in row_blocks(len(rows), max(self.dim, self.size)):
            part = rows[block]
            angles = exact_products(part, self.directions.T) if apart else part @ self.directions.T
            np.cos(angles, out=mapped[block, 0::2])
            np.sin(angles, out=mapped[block, 1::2])
        mapped *= math.sqrt(2 / self.size)
        return mapped

    def head(self, solution: Head) -> "KernelHead":
        """The head that maps features before it applies a solution over φ. Raises ShapeMismatch for one of another size."""
        if len(solution.weights) != self.size:
            raise ShapeMismatch(f"weights are for {len(solution.weights)} features, φ has {self.size}")
        return KernelHead(
            solution.weights, solution.bias, solution.empty_classes, self, centre=solution.centre
        )


@dataclass(frozen=True, repr=False, eq=False)
class KernelHead(Head):
    """A head on random features, φ = `map`."""

    map: RandomFeatures

    @property
    def dim(self) -> int:
        """Features before φ."""
        return self.map.dim

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """φ of the features, (n, D)."""
        return self.map.of_units(
            unit_directions(self._check_features(features, normalise=normalise), self.centre)
        )

    def with_weights(self, weights: Floats, bias: Floats | None) -> "KernelHead":
        return replace(self, weights=weights, bias=bias)


def mean_squared_distance(statistics: FFCStatistics) -> float:
    """E‖z − z'‖² of two random records, 2(1 − ‖mean z‖²), from U and counts: a scale for the bandwidth. Raises NoRecords if empty."""
    if not statistics.records:
        raise NoRecords("the statistics hold no records: sum a first round to find a bandwidth")
    mean = statistics.U.sum(axis=1) / statistics.records
    if statistics.constant:
        mean = mean[:-1] / FEATURES_FACTOR
    return 2 * max(0.0, 1 - float(mean @ mean))


def suggested_bandwidth(statistics: FFCStatistics) -> float:
    """√½ times the root mean squared distance of two records, a good σ in practice; to 4 digits."""
    return float(f"{math.sqrt(mean_squared_distance(statistics) / 2):.4g}")


def solve_random_features(
    statistics: FFCStatistics,
    features: RandomFeatures,
    sizes: Sequence[int] | None = None,
    ridge: Ridges | Callable[[FFCStatistics], Ridges] = None,
) -> KernelHead:
    """The head with the smallest GCV error over numbers of random features and over λ. Arguments and errors as `choose_random_features`."""
    chosen, solution = choose_random_features(statistics, features, sizes, ridge)
    return chosen.head(solution)


def choose_random_features(
    statistics: FFCStatistics,
    features: RandomFeatures,
    sizes: Sequence[int] | None = None,
    ridge: Ridges | Callable[[FFCStatistics], Ridges] = None,
) -> tuple[RandomFeatures, Solution]:
    """Choose the number of random features and λ by GCV; return the random features and the solution over them.

    Features of one seed are nested, so one upload at the largest size D, D(D + 1)/2 + DC + C numbers, holds the sums of every smaller one.

    Args:
        statistics: of φ, accumulated in float64 without a constant column.
        features: φ.
        sizes: D to choose from, even; None for D, D/2 and D/4 where these are even.
        ridge: as `solve_ffc`, or a function that gives it for the statistics of one size.

    Raises:
        ShapeMismatch: statistics of another number of features, or a size outside 2…D.
        CalibrationError: as `solve_ffc`.
    """
    if statistics.dim != features.size:
        raise ShapeMismatch(f"the statistics are of {statistics.dim} features, φ has {features.size}")
    tried = sizes or [
        size for size in (features.size // 4, features.size // 2, features.size) if size > 0 and size % 2 == 0
    ]
    maps = [replace(features, size=size) for size in sorted(tried)]
    parts = [
        statistics if smaller == features else statistics.first_features(smaller.size) for smaller in maps
    ]
    solutions = [solve_ffc(part, ridge(part) if callable(ridge) else ridge) for part in parts]
    errors = [float(solution.gcv[solution.grid == solution.ridge][0]) for solution in solutions]
    best = int(np.argmin(errors))
    return maps[best], solutions[best]


def _draw_normals(seed: bytes, rows: int, dim: int) -> Floats:
    """(rows, dim) standard normals, row by row from one stream, so that fewer rows are a prefix of more."""
    pairs = (rows * dim + 1) // 2
    words = np.frombuffer(hashlib.shake_256(_DIRECTIONS_TAG + seed).digest(16 * pairs), "<u8").reshape(
        pairs, 2
    )
    uniforms = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniforms[:, 0])), 2 * np.pi * uniforms[:, 1]
    normals = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).ravel()
    return normals[: rows * dim].reshape(rows, dim)
