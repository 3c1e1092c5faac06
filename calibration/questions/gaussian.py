"""CCVR's round: counts, sums and second moments of each class (Luo et al. 2021)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.ccvr import CCVRStatistics
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layouts import ccvr_layout
from calibration.moments import ClassMoments
from calibration.noisy_ccvr import NoisyGaussians
from calibration.privacy.mechanism import COUNTS_WEIGHT, class_layout
from calibration.privacy.sensitivity import Release, ccvr_sensitivity
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Earlier,
    Gathering,
    Mapped,
    Question,
    RoundLattice,
    Summed,
    Wish,
    total_of,
)
from calibration.rows import as_features, check_rows, unit_rows
from calibration.virtual import TukeyHead, solve_ccvr

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.layout import Scalar
    from calibration.privacy import Mechanism, NoiseTerms
    from calibration.rows import Array, Floats, Integers


class CCVR(Question):
    """n_c, Σz, Σzzᵀ of each class; the head is retrained on features drawn from the classes' Gaussians."""

    name: ClassVar[str] = "ccvr"
    title: ClassVar[str] = "logistic head on features drawn from each class's Gaussian"
    learns: ClassVar[str] = "the count, Σz and Σzzᵀ of each class by itself, over all members together"
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {
        "unit": (bool, True),
        "norm_bound": (float, 1.0),
        "per_class": (int, 100),
        "tukey": (bool, True),
        "power": (float, 0.5),
    }

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`unit` scales features to length 1, else none is longer than `norm_bound`; `per_class` are drawn of each class."""
        del earlier
        given = wish.parameters
        if given["unit"] and given["norm_bound"] != 1.0:
            raise CalibrationError("a norm bound other than 1 goes with unit=false")
        layout = (class_layout if wish.noisy else ccvr_layout)(wish.dim, wish.classes)
        return Asked(layout.having(dim=wish.dim, classes=wish.classes, **given))

    @property
    def _unit(self) -> bool:
        return bool(self.layout.parameter("unit"))

    @property
    def directed(self) -> bool:
        """A row of zeros is a record unless rows are scaled."""
        return self._unit

    @property
    def noisy(self) -> bool:
        """Whether the layout is one for noise."""
        return "N" in self.layout.slices

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """(αN, wS, M) of the one class that a record touches."""
        del lattice
        self._expect(class_layout(self.dim, self.classes))
        sensitivity = ccvr_sensitivity(
            COUNTS_WEIGHT,
            noise.weight,
            1.0,
            neighbours=noise.neighbours,
            nonnegative=noise.nonnegative,
        )
        return Release(sensitivity, noise.weight, COUNTS_WEIGHT)

    def check_head(self, head: Head) -> None:
        """It maps features as the terms say."""
        if not isinstance(head, TukeyHead) or head.unit != self._unit:
            raise LayoutMismatch("the head is not one for features as this round summed them")
        self._check_size(head)

    def _statistics(self) -> CCVRStatistics:
        self._expect(ccvr_layout(self.dim, self.classes))
        return CCVRStatistics(self.dim, self.classes, norm_bound=self._real("norm_bound"))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """One flat array, of whole numbers under noise."""
        own = self._integers(lattice)
        if own is not None:
            bound = self._real("norm_bound")
            return ClassMoments(self.layout, own, self.dim, norm_bound=bound, unit=self._unit)
        statistics = self._statistics()
        if not (self._unit and normalise):
            return statistics

        def mapped(features: Array) -> Floats:
            matrix = as_features(features, self.dim)
            check_rows(matrix, normalise=True)
            return unit_rows(matrix)[0]

        return Mapped(statistics, mapped)

    def gathering(self, lattice: RoundLattice) -> Gathering:
        """The pooled statistics themselves: one array, however large the sum."""
        if isinstance(lattice, FeaturesLattice):
            return super().gathering(lattice)
        return _Gathering(self._statistics(), lattice)

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """The pooled statistics, checked class by class; of a noisy sum `NoisyGaussians`."""
        if summed.mechanism is not None:
            return self._noisy(total_of(gathering), summed, summed.mechanism)
        statistics: CCVRStatistics = gathering.statistics
        assert isinstance(summed.lattice, SumsLattice)
        statistics.check(summed.lattice, summed.members)
        return statistics

    def _noisy(self, total: Integers, summed: Summed, mechanism: Mechanism) -> NoisyGaussians:
        blocks, lattice = self.layout.unflatten(total), summed.lattice
        return NoisyGaussians(
            lattice.decode(blocks["N"], 2),
            lattice.decode(blocks["S"], 1),
            np.array([lattice.decode(blocks[f"M.{label}"], 2) for label in range(self.classes)]),
            mechanism.deviation("N", summed.members),
            mechanism.deviation("M.0", summed.members),
            self._real("norm_bound"),
        )

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The retrained head; its draws follow from the round's context."""
        del summed
        seed = hashlib.sha256(b"veilsum calibration virtual features 1 " + self.context).digest()
        head = solve_ccvr(
            statistics,
            np.random.default_rng(int.from_bytes(seed, "little")),
            per_class=self._number("per_class"),
            power=self._real("power") if self.layout.parameter("tukey") else None,
            unit=self._unit,
        )
        return Answer(statistics.records, head, chosen_by="virtual features")


class _Gathering:
    """Takes pieces of the sum up as they come."""

    def __init__(self, statistics: CCVRStatistics, lattice: RoundLattice) -> None:
        assert isinstance(lattice, SumsLattice)
        self.statistics, self._lattice = statistics, lattice

    def take(self, start: int, piece: Integers) -> None:
        self.statistics.add_sums(self._lattice, piece, start=start)
