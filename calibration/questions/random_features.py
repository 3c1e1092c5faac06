"""Rounds that end in a ridge head on random features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from calibration.checks import check_sums
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.ffc import FFCStatistics
from calibration.head import Head
from calibration.lattice import SumsLattice
from calibration.layouts import ffc_layout
from calibration.moments import IntegerMoments
from calibration.privacy import Release, ffc_sensitivity, noisy_layout
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Earlier,
    Mapped,
    Question,
    RoundLattice,
    Summed,
    Wish,
    check_sign,
    total_of,
)
from calibration.questions.centring import Mean
from calibration.questions.ffc import NoisySums
from calibration.questions.ridge import grid_of, ridge_answer
from calibration.random_features import (
    KernelHead,
    RandomFeatures,
    choose_random_features,
    mean_squared_distance,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.lattice import FeaturesLattice
    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms


class RandomFeatureRidge(Question):
    """FFC's sums of random Fourier features, drawn from the round's context, exact or under noise (Fed3R-RF: Fanì et al. 2024)."""

    name: ClassVar[str] = "rff"
    title: ClassVar[str] = "kernel ridge head by random features; their number and λ by GCV"
    learns: ClassVar[str] = "Σφφᵀ, Σφ·one_hot(y)ᵀ and the records of each class, φ the random features"
    may_rest_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias", "mean")
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {
        "size": (int, 1024),
        "bandwidth": (float, None),
    }

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`size` is D, even; `bandwidth` σ, by default √½ times the root mean squared distance of two records."""
        size, bandwidth = int(wish.parameters["size"]), wish.parameters.get("bandwidth")
        if bandwidth is None:
            bandwidth = float(f"{_bandwidth(earlier):.4g}")  # two sums a rounding apart tell the same
        RandomFeatures(1, size, float(bandwidth), b"")  # refuses what is none
        blocks = noisy_layout(size, wish.classes) if wish.noisy else ffc_layout(size, wish.classes)
        return Asked(blocks.having(dim=wish.dim, classes=wish.classes, size=size, bandwidth=float(bandwidth)))

    @property
    def noisy(self) -> bool:
        """Whether the layout is one for noise, without counts."""
        return self.blocks == noisy_layout(self._number("size"), self.classes)

    @property
    def rows(self) -> int:
        """D."""
        return self._number("size")

    @property
    def roundings(self) -> float:
        """Sums of fewer features, D/4 at the least, are scaled to rows of length 1, and their rounding with them."""
        return 4.0

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """(V, wU) of random features, whose length is 1 as that of features."""
        del lattice
        check_sign(noise, mapped=True)
        return Release(ffc_sensitivity(noise.weight, neighbours=noise.neighbours), noise.weight)

    def check_head(self, head: Head) -> None:
        """Its map follows from this very round's context."""
        phi = self._map()
        if not isinstance(head, KernelHead) or (head.map.context, head.map.bandwidth) != (
            phi.context,
            phi.bandwidth,
        ):
            raise LayoutMismatch("the head does not apply the random features of this round")
        self._check_size(head)

    def _map(self) -> RandomFeatures:
        if not self.noisy:
            self._expect(ffc_layout(self._number("size"), self.classes))
        return RandomFeatures(self.dim, self._number("size"), self._real("bandwidth"), self.context)

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """FFC statistics of φ; under noise sums of its integer rows."""
        phi, own = self._map(), self._integers(lattice)
        sums = (
            FFCStatistics(phi.size, self.classes, track_records=False, normalise=True)
            if own is None
            else IntegerMoments(self.layout, own)
        )
        return Mapped(sums, lambda features: phi(features, normalise=normalise, total=self.noisy))

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """FFC statistics of φ; of a noisy sum `NoisySums`."""
        total = total_of(gathering)
        if summed.mechanism is not None:
            return NoisySums.of(self.layout, total, summed)
        assert isinstance(summed.lattice, SumsLattice)
        check_sums(self.blocks, summed.lattice, total, members=summed.members, bias=False)
        return FFCStatistics.from_sums(self.blocks, summed.lattice, total, bias=False, members=summed.members)

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The kernel head of the best D; of a noisy sum that of all D, by shrinkage."""
        if summed.mechanism is not None:
            return self._noisy_answer(statistics)
        whole = self._map()

        def grid(part: FFCStatistics) -> Sequence[float] | None:
            return grid_of(part, summed, roundings=whole.size / part.dim)

        phi, solution = choose_random_features(statistics, whole, ridge=grid)
        return ridge_answer(solution, summed, phi.head(solution), roundings=whole.size / phi.size)

    def _noisy_answer(self, sums: NoisySums) -> Answer:
        linear = Head(sums.solution.weights, None, ())
        return sums.answer(self._map().head(linear))


def _bandwidth(earlier: Earlier | None) -> float:
    """√(E‖z − z'‖²/2) of two records, which the sums of an exact round of ffc tell, or any round of means."""
    if earlier is None:
        raise CalibrationError(
            "rff needs a bandwidth: pass one, or a round of ffc or mean to rest on, whose sums tell a scale"
        )
    told = earlier.statistics
    if isinstance(told, Mean):
        return math.sqrt(told.spread)
    if not isinstance(told, FFCStatistics):
        raise CalibrationError(
            "a noisy round of ffc tells no bandwidth: pass one, or rest on a round of mean"
        )
    return math.sqrt(mean_squared_distance(told) / 2)
