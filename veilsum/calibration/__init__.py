"""What the sums mean: statistics of labelled features, and the classifier heads that follow from them.

>>> statistics = FFCStatistics(dim=64, classes=10)
>>> statistics.update(features, labels)
>>> solve_ffc(statistics).weights
"""

from veilsum.calibration.ccvr import CCVRStatistics
from veilsum.calibration.ccvr_head import solve_ccvr
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head
from veilsum.calibration.lda import nearest_class_mean, solve_lda
from veilsum.calibration.random_features import RandomFeatures, solve_random_features
from veilsum.calibration.reliability import Reliability
from veilsum.calibration.ridge import Solution, ridge_posterior, solve_ffc

__all__ = [
    "CCVRStatistics",
    "CalibrationError",
    "FFCStatistics",
    "Head",
    "RandomFeatures",
    "Reliability",
    "Solution",
    "nearest_class_mean",
    "ridge_posterior",
    "solve_ccvr",
    "solve_ffc",
    "solve_lda",
    "solve_random_features",
]
