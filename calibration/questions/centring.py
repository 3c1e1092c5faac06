"""The mean of all records, exact or under noise: what a round of FFC takes from features before it sums them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch, SumCheckFailed
from calibration.lattice import FeaturesLattice
from calibration.layout import in_pieces
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
from calibration.rows import as_features, as_labels, check_rows, unit_rows, with_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.head import Head
    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Floats, Integers

_SQRT_HALF = float(np.sqrt(0.5))


@dataclass(frozen=True, eq=False)
class Mean:
    """What a round of it pools: Σ(z, 1)/√2, (dim + 1,)."""

    sums: Floats
    constant: float = _SQRT_HALF
    """What a record adds last; on a features lattice its 1/√2 is rounded."""
    deviation: float = 0.0
    """Of the noise on each entry; 0 for an exact sum."""

    @property
    def records(self) -> int:
        """N; under noise an estimate, at least 1."""
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
            if self.deviation
            else "all records are alike: their mean tells no bandwidth; pass one"
        )


class MeanOfRecords(Question):
    """Σ(z, 1)/√2, of rows of length 1: dim + 1 numbers, so that noise which drowns V leaves the mean as it is."""

    name: ClassVar[str] = "mean"
    title: ClassVar[str] = "mean of all records, to centre the features of a later round by, and no head"
    learns: ClassVar[str] = "Σz and the number of records, over all members together"
    lattices: ClassVar[tuple[str, ...]] = ("sums", "features")
    takes_noise: ClassVar[bool] = True
    has_head: ClassVar[bool] = False
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {}

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """One number a feature, and one."""
        del earlier
        return Asked(mean_layout(wish.dim).having(dim=wish.dim, classes=wish.classes))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Sums of rows, in integers on a features lattice."""
        self._expect(self.ask(Wish(self.dim, self.classes), None).layout)
        return _Summing(self.dim, self.classes, lattice, normalise=normalise)

    def gathered(self, gathering: Any, summed: Summed) -> Mean:
        """The sum; of an exact one no row was longer than 1."""
        lattice = summed.lattice
        sums = lattice.decode(total_of(gathering), 1)
        pooled = Mean(sums)
        if isinstance(lattice, FeaturesLattice):
            pooled = Mean(sums, lattice.constant / lattice.unit(1))
        if summed.mechanism is not None:
            return replace(pooled, deviation=summed.mechanism.deviation("z", summed.members))
        slack = len(sums) * (summed.members + pooled.records) / lattice.unit(1)
        if sums[-1] <= 0 or np.linalg.norm(sums[:-1]) > sums[-1] + slack:
            raise SumCheckFailed(
                f"Σz has length {np.linalg.norm(sums[:-1]):g}, of {pooled.records} records", identity="mean"
            )
        return pooled

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


class _Summing:
    def __init__(self, dim: int, classes: int, lattice: RoundLattice, *, normalise: bool) -> None:
        self._dim, self._classes, self._normalise = dim, classes, normalise
        self._whole = lattice if isinstance(lattice, FeaturesLattice) else None
        self._sums: Any = np.zeros(dim + 1, np.float64 if self._whole is None else np.int64)
        self.records = 0

    def update(self, features: Array, labels: Array) -> None:
        matrix = as_features(features, self._dim)
        as_labels(labels, len(matrix), self._classes)
        check_rows(matrix, normalise=self._normalise)
        if self._whole is None:
            rows: Any = with_constant(unit_rows(matrix)[0], _SQRT_HALF)
        else:
            rows = self._whole.encode_rows(matrix, bias=True)
        self._sums += rows.sum(axis=0)
        self.records += len(matrix)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        whole = self._sums if isinstance(lattice, FeaturesLattice) else lattice.encode(self._sums)
        return in_pieces(whole, elements)
