"""What the sums mean: statistics of labelled features, and the classifier heads that follow from them.

>>> statistics = FFCStatistics(dim=64, classes=10)
>>> statistics.update(features, labels)
>>> solve_ffc(statistics).weights
"""

from calibration.accuracy import smallest_ridge, weights_error_bound
from calibration.answer import Answer, Document
from calibration.ccvr import CCVRStatistics
from calibration.checks import check_sums
from calibration.errors import (
    CalibrationError,
    ConfigMismatch,
    HeadroomExceeded,
    LabelOutOfRange,
    LatticeMismatch,
    LayoutMismatch,
    NoiseTooSmall,
    NonFinite,
    NoRecords,
    NormExceeded,
    NotUnitNorm,
    RowError,
    ShapeMismatch,
    SingularSystem,
    SolutionCheckFailed,
    SumCheckFailed,
    WrongDtype,
    ZeroRow,
)
from calibration.ffc import FFCStatistics
from calibration.head import Head
from calibration.lattice import FeaturesLattice, Lattice, SumsLattice
from calibration.layout import Block, DenseBlock, Layout, SymmetricBlock
from calibration.layouts import ccvr_layout, ffc_layout
from calibration.lda import LDA, nearest_class_mean, oracle_shrinkage, solve_lda
from calibration.logistic import fit_logistic, fit_logistic_sgd
from calibration.personal import Personal, personalise
from calibration.posterior import RidgePosterior, ridge_posterior
from calibration.random_features import (
    KernelHead,
    RandomFeatures,
    mean_squared_distance,
    solve_random_features,
    suggested_bandwidth,
)
from calibration.reliability import Reliability
from calibration.ridge import default_grid, solve_ffc
from calibration.solution import Solution
from calibration.verify import check_solution
from calibration.virtual import TukeyHead, positive_definite, solve_ccvr, tukey, virtual_features

__all__ = [
    "LDA",
    "Answer",
    "Block",
    "CCVRStatistics",
    "CalibrationError",
    "ConfigMismatch",
    "DenseBlock",
    "Document",
    "FFCStatistics",
    "FeaturesLattice",
    "Head",
    "HeadroomExceeded",
    "KernelHead",
    "LabelOutOfRange",
    "Lattice",
    "LatticeMismatch",
    "Layout",
    "LayoutMismatch",
    "NoRecords",
    "NoiseTooSmall",
    "NonFinite",
    "NormExceeded",
    "NotUnitNorm",
    "Personal",
    "RandomFeatures",
    "Reliability",
    "RidgePosterior",
    "RowError",
    "ShapeMismatch",
    "SingularSystem",
    "Solution",
    "SolutionCheckFailed",
    "SumCheckFailed",
    "SumsLattice",
    "SymmetricBlock",
    "TukeyHead",
    "WrongDtype",
    "ZeroRow",
    "ccvr_layout",
    "check_solution",
    "check_sums",
    "default_grid",
    "ffc_layout",
    "fit_logistic",
    "fit_logistic_sgd",
    "mean_squared_distance",
    "nearest_class_mean",
    "oracle_shrinkage",
    "personalise",
    "positive_definite",
    "ridge_posterior",
    "smallest_ridge",
    "solve_ccvr",
    "solve_ffc",
    "solve_lda",
    "solve_random_features",
    "suggested_bandwidth",
    "tukey",
    "virtual_features",
    "weights_error_bound",
]
