"""The noisy mean of all records: what a noisy round of FFC takes from features before it sums them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.lattice import FeaturesLattice
from calibration.moments import IntegerSums
from calibration.privacy.mechanism import mean_layout
from calibration.privacy.sensitivity import Release, mean_sensitivity
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Document,
    Earlier,
    Question,
    RoundLattice,
    Summed,
    Wish,
    total_of,
)

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Floats, Integers

_SQRT_HALF = float(np.sqrt(0.5))


@dataclass(frozen=True, eq=False)
class Mean:
    """What a round of it pools: Σ(z, 1)/√2, (dim + 1,)."""

    sums: Floats
    constant: float
    """What a record adds last: 1/√2, rounded."""
    deviation: float
    """Of the noise on each entry."""

    @property
    def records(self) -> int:
        """N, an estimate, at least 1."""
        return max(1, round(float(self.sums[-1]) / self.constant))

    @property
    def mean(self) -> Floats:
        """m, (dim,), drawn back to length 1 where noise made it longer; CalibrationError where noise drowned the records."""
        if self.sums[-1] <= 0:
            raise CalibrationError(
                "the noise drowned the records: no mean follows; take a larger ε or more records"
            )
        mean: Floats = self.sums[:-1] / _SQRT_HALF / (self.sums[-1] / self.constant)
        return mean / max(1.0, float(np.linalg.norm(mean)))

    @property
    def spread(self) -> float:
        """E‖z − m‖² = 1 − ‖m‖², less what noise adds to ‖m‖² in the mean; CalibrationError where nothing of it is left."""
        count = float(self.sums[-1]) / self.constant
        if count > 0:
            mean, of_each = self.sums[:-1] / _SQRT_HALF / count, self.deviation / _SQRT_HALF / count
            spread = 1 - float(mean @ mean) + len(mean) * of_each**2
            if spread > 0:
                return min(1.0, spread)
        raise CalibrationError(
            "the noise drowned the records' spread: pass a bandwidth, or take a larger ε or more records"
        )


class MeanOfRecords(Question):
    """Σ(z, 1)/√2, of rows of length 1: dim + 1 numbers, so that noise which drowns V leaves the mean as it is."""

    name: ClassVar[str] = "mean"
    title: ClassVar[str] = "mean of all records, to centre the features of a later round by, and no head"
    learns: ClassVar[str] = "Σz and the number of records, over all members together"
    exact: ClassVar[bool] = False
    has_head: ClassVar[bool] = False
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {}

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """One number a feature, and one."""
        del earlier
        return Asked(mean_layout(wish.dim).having(dim=wish.dim, classes=wish.classes))

    @property
    def noisy(self) -> bool:
        """Always."""
        return True

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Sums of integer rows."""
        del normalise
        self._expect(mean_layout(self.dim))
        own = self._integers(lattice)
        assert own is not None  # or the layout would not be for it
        return _RowSums(self.layout, own, self.classes, self.dim)

    def gathered(self, gathering: Any, summed: Summed) -> Mean:
        """The sum."""
        lattice, mechanism = summed.lattice, summed.mechanism
        assert isinstance(lattice, FeaturesLattice)
        assert mechanism is not None
        sums = lattice.decode(total_of(gathering), 1)
        constant = lattice.constant / lattice.unit(1)
        return Mean(sums, constant, mechanism.deviation("z", summed.members))

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """Σ(z, 1)/√2."""
        constant = lattice.constant_share
        return Release(mean_sensitivity(noise.neighbours, nonnegative=noise.nonnegative, constant=constant))

    def check_head(self, head: Head) -> None:
        """There is none."""
        del head
        raise LayoutMismatch("a round of means ends in no head")

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """No head, the mean alone."""
        del summed
        return Answer(statistics.records, None, documents={"mean": Document({"mean": statistics.mean})})


class _RowSums(IntegerSums):
    def _add(self, rows: Floats, labels: Integers) -> None:
        del labels
        self.part("z")[:] += self.lattice.encode_rows(rows, bias=True).sum(axis=0)
