"""What the sums mean: statistics of labelled features, and the classifier heads that follow from them.

>>> statistics = FFCStatistics(dim=64, classes=10)
>>> statistics.update(features, labels)
>>> solve_ffc(statistics).weights
"""

from veilsum.calibration.answer import Answer, Document
from veilsum.calibration.ccvr import CCVRStatistics
from veilsum.calibration.ccvr_head import (
    TukeyHead,
    fit_logistic,
    fit_logistic_sgd,
    positive_definite,
    solve_ccvr,
    tukey,
    virtual_features,
)
from veilsum.calibration.checks import check_solution, check_sums
from veilsum.calibration.errors import (
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
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head
from veilsum.calibration.lattice import FeaturesLattice, Lattice, SumsLattice
from veilsum.calibration.layout import Block, DenseBlock, Layout, SymmetricBlock, ccvr_layout, ffc_layout
from veilsum.calibration.lda import LDA, nearest_class_mean, oracle_shrinkage, solve_lda
from veilsum.calibration.random_features import (
    KernelHead,
    RandomFeatures,
    mean_squared_distance,
    solve_random_features,
    suggested_bandwidth,
)
from veilsum.calibration.reliability import Reliability
from veilsum.calibration.ridge import (
    Personal,
    RidgePosterior,
    Solution,
    default_grid,
    personalise,
    ridge_posterior,
    smallest_ridge,
    solve_ffc,
    weights_error_bound,
)

__all__ = [
    "LDA", "Answer", "Block", "CCVRStatistics", "CalibrationError", "ConfigMismatch", "DenseBlock",
    "Document", "FFCStatistics", "FeaturesLattice", "Head", "HeadroomExceeded", "KernelHead",
    "LabelOutOfRange", "Lattice", "LatticeMismatch", "Layout", "LayoutMismatch", "NoRecords", "NoiseTooSmall",
    "NonFinite", "NormExceeded", "NotUnitNorm", "Personal", "RandomFeatures", "Reliability", "RidgePosterior",
    "RowError", "ShapeMismatch", "SingularSystem", "Solution", "SolutionCheckFailed", "SumCheckFailed",
    "SumsLattice", "SymmetricBlock", "TukeyHead", "WrongDtype", "ZeroRow", "ccvr_layout", "check_solution",
    "check_sums", "default_grid", "ffc_layout", "fit_logistic", "fit_logistic_sgd", "mean_squared_distance",
    "nearest_class_mean", "oracle_shrinkage", "personalise", "positive_definite", "ridge_posterior",
    "smallest_ridge", "solve_ccvr", "solve_ffc", "solve_lda", "solve_random_features", "suggested_bandwidth",
    "tukey", "virtual_features", "weights_error_bound",
]  # fmt: skip
