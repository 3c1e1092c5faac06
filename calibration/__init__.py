"""What the sums mean: statistics of labelled features, and the classifier heads that follow from them.

>>> statistics = FFCStatistics(dim=64, classes=10)
>>> statistics.update(features, labels)
>>> solve_ffc(statistics).weights
"""

from calibration.accuracy import check_ridge, smallest_ridge, weights_error_bound
from calibration.checks import check_sums
from calibration.errors import (
    BudgetMismatch,
    BudgetSpent,
    CalibrationError,
    ConfigMismatch,
    HeadroomExceeded,
    LabelOutOfRange,
    LatticeMismatch,
    LayoutMismatch,
    NoiseTooSmall,
    NonFinite,
    NoRecords,
    NotUnitNorm,
    RecordsNotTracked,
    RidgeTooSmall,
    RowError,
    ShapeMismatch,
    SingularSystem,
    SolutionCheckFailed,
    SumCheckFailed,
    WrongDtype,
    ZeroRow,
)
from calibration.ffc import FFCStatistics
from calibration.indicator import ClassIndicator, indicator_classes, indicator_layout
from calibration.lattice import FeaturesLattice, IndicatorLattice, Lattice, SumsLattice, lattice_from
from calibration.layout import Block, DenseBlock, Layout, SymmetricBlock
from calibration.layouts import ffc_layout
from calibration.ridge import default_grid, solve_ffc
from calibration.solution import Solution
from calibration.verify import check_solution

__all__ = [
    "Block",
    "BudgetMismatch",
    "BudgetSpent",
    "CalibrationError",
    "ClassIndicator",
    "ConfigMismatch",
    "DenseBlock",
    "FFCStatistics",
    "FeaturesLattice",
    "HeadroomExceeded",
    "IndicatorLattice",
    "LabelOutOfRange",
    "Lattice",
    "LatticeMismatch",
    "Layout",
    "LayoutMismatch",
    "NoRecords",
    "NoiseTooSmall",
    "NonFinite",
    "NotUnitNorm",
    "RecordsNotTracked",
    "RidgeTooSmall",
    "RowError",
    "ShapeMismatch",
    "SingularSystem",
    "Solution",
    "SolutionCheckFailed",
    "SumCheckFailed",
    "SumsLattice",
    "SymmetricBlock",
    "WrongDtype",
    "ZeroRow",
    "check_ridge",
    "check_solution",
    "check_sums",
    "default_grid",
    "ffc_layout",
    "indicator_classes",
    "indicator_layout",
    "lattice_from",
    "smallest_ridge",
    "solve_ffc",
    "weights_error_bound",
]
