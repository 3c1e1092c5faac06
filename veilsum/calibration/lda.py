"""Heads from class means and the covariance that classes share, from FFC's sums.

With μ_c = U_c/n_c, the covariance within classes is Σ = (V − Σ_c n_c μ_cμ_cᵀ)/(n − C') over the C' classes that have records. That is CCVR
(Luo et al. 2021) with one covariance for all classes, in closed form instead of by sampling.
"""

from dataclasses import dataclass

import numpy as np

from veilsum.calibration.errors import CalibrationError, NoRecords, SingularSystem
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head, find_empty_classes
from veilsum.calibration.rows import FEATURES_FACTOR, Floats
from veilsum.calibration.spectrum import FLOAT64_EPS, Spectrum


@dataclass(frozen=True, repr=False, eq=False)
class LDA(Head):
    """Linear discriminant analysis. A record's scores are log posteriors up to a constant.

    Attributes:
        means: (C, dim), μ_c; 0 for classes without records.
        covariance: (dim, dim), Σ after shrinkage.
        shrinkage: γ of (1 − γ)Σ + γ·(tr Σ/l)·I.
    """

    means: Floats
    covariance: Floats
    shrinkage: float


def solve_lda(statistics: FFCStatistics, *, shrinkage: float | None = None) -> LDA:
    """LDA from V, U and counts: w_c = Σ⁻¹μ_c, b_c = log π_c − ½μ_cᵀΣ⁻¹μ_c (Hastie, Tibshirani, Friedman 2009, eq. 4.10).

    π_c is n_c/n: `Head.with_prior` takes others. The shrinkage γ goes from 0 to 1; None takes `oracle_shrinkage`, which these sums determine.
    A constant column is left out.

    Raises:
        NoRecords: no more records than classes that have any.
        SingularSystem: Σ can't be inverted: features that are always 0, as after a ReLU, need γ > 0.
        CalibrationError: a shrinkage outside 0…1.
    """
    means, within, counts = class_moments(statistics)
    held = np.flatnonzero(counts)
    freedom = int(counts.sum()) - len(held)
    gamma = oracle_shrinkage(within, freedom) if shrinkage is None else shrinkage
    if not 0 <= gamma <= 1:
        raise CalibrationError(f"a shrinkage lies from 0 to 1, not {shrinkage!r}")
    covariance = (1 - gamma) * within
    covariance[np.diag_indices(len(within))] += gamma * np.trace(within) / len(within)

    scale = FEATURES_FACTOR if statistics.constant else 1.0
    # What is left of records that are alike is the rounding of long float64 sums.
    rounding = max(statistics.rounding_deviation, FLOAT64_EPS * statistics.records)
    spectrum = Spectrum.decompose(covariance, rounding / (scale**2 * freedom))
    try:
        spectrum.check_invertible(0.0)
    except SingularSystem as error:
        raise SingularSystem(
            "the covariance within classes is singular: take a shrinkage above 0, or records of a class that differ"
        ) from error
    weights = spectrum.vectors @ ((spectrum.vectors.T @ means.T) / spectrum.values[:, None])
    bias = np.zeros(len(counts))
    bias[held] = np.log(counts[held] / counts.sum()) - 0.5 * np.einsum(
        "cl,lc->c", means[held], weights[:, held]
    )
    return LDA(weights, bias, find_empty_classes(counts), means, covariance, float(gamma))


def class_moments(statistics: FFCStatistics) -> tuple[Floats, Floats, Floats]:
    """Return the (C, dim) class means, the (dim, dim) covariance within classes, and the (C,) counts. Raises NoRecords as `solve_lda`."""
    V, sums, counts = _unit_moments(statistics)
    held = np.flatnonzero(counts)
    freedom = int(counts.sum()) - len(held)
    if freedom < 1:
        raise NoRecords(f"{counts.sum():.0f} records of {len(held)} classes leave no covariance: add records")
    means = sums.T / np.maximum(counts, 1)[:, None]
    return means, (V - (means[held].T * counts[held]) @ means[held]) / freedom, counts


def oracle_shrinkage(covariance: Floats, freedom: int) -> float:
    """The oracle approximating shrinkage γ (Chen, Wiesel, Eldar and Hero 2010, eq. 23).

    It needs only tr S and tr S² of the (l, l) sample covariance S, and how many independent records S is worth, `freedom`. (Ledoit and Wolf's
    needs Σ‖z‖⁴ as well, which no sum here holds.)
    """
    dim, trace, square = len(covariance), float(np.trace(covariance)), float((covariance**2).sum())
    excess = (freedom + 1 - 2 / dim) * (square - trace**2 / dim)
    if excess <= 0:
        return 1.0  # a multiple of I already
    return min(1.0, ((1 - 2 / dim) * square + trace**2) / excess)


def nearest_class_mean(statistics: FFCStatistics) -> Head:
    """The head that predicts the class with the nearest mean, from U and counts alone.

    argmin ‖z − μ_c‖ = argmax zᵀμ_c − ½‖μ_c‖² (Mensink et al. 2013). Raises NoRecords if empty.
    """
    _, sums, counts = _unit_moments(statistics)
    if not counts.any():
        raise NoRecords("the statistics hold no records: update or merge before asking for means")
    means = sums.T / np.maximum(counts, 1)[:, None]
    return Head(means.T, -0.5 * (means**2).sum(axis=1), find_empty_classes(counts))


def _unit_moments(statistics: FFCStatistics) -> tuple[Floats, Floats, Floats]:
    """V (dim, dim), U (dim, C) and counts of unit features, without a constant column."""
    V, U = statistics.V, statistics.U
    if statistics.constant:
        V, U = V[:-1, :-1] / FEATURES_FACTOR**2, U[:-1] / FEATURES_FACTOR
    return V, U, statistics.counts.astype(np.float64)
