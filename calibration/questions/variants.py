"""Rounds that end in a ridge head of another kind: classes that count alike, random features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.checks import check_sums
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.ffc import FFCStatistics, balanced_weights
from calibration.head import Head
from calibration.lattice import FeaturesLattice
from calibration.layouts import ffc_layout
from calibration.moments import WeightedMoments
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
from calibration.questions.ffc import NoisySums, Vectors
from calibration.questions.ridge import grid_of, ridge_answer, solved
from calibration.random_features import (
    KernelHead,
    RandomFeatures,
    choose_random_features,
    leading_axes,
    mean_squared_distance,
    principal_axes,
    projected,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Floats


class Balanced(Question):
    """FFC's sums with weights that let every class count alike, known from a round before."""

    name: ClassVar[str] = "balanced"
    aimed = True
    title: ClassVar[str] = "ridge head for which every class counts alike; needs a round of counts before"
    learns: ClassVar[str] = "the same as FFC's, each record weighted by its class"
    rests_on: ClassVar[tuple[str, ...]] = ("counts", "ffc", "ffc-bias")
    takes_noise: ClassVar[bool] = True
    rests_on_noisy: ClassVar[bool] = True
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"bias": (bool, False)}

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The weights are material; classes that had no records weigh 1."""
        assert earlier is not None
        counts = _counts(earlier.statistics)
        weights = np.asarray(balanced_weights(counts))
        if len(weights) != wish.classes:
            raise CalibrationError(f"the round before counted {len(weights)} classes, not {wish.classes}")
        bias = bool(wish.parameters.get("bias"))
        layout = (noisy_layout if wish.noisy else ffc_layout)(wish.dim, wish.classes, bias=bias)
        return Asked(
            layout.having(
                dim=wish.dim,
                classes=wish.classes,
                bias=bias or None,
                records=max(1, round(float(counts.sum()))) if wish.noisy else None,
            ),
            {"class_weights": weights},
        )

    @property
    def rows(self) -> int:
        """l, with the constant."""
        return self.dim + self.bias

    def _weights(self) -> tuple[float, ...]:
        weights = self._array("class_weights", self.classes)
        if not ((weights > 0) & (weights <= 1)).all():
            raise LayoutMismatch("the material's class weights lie above 0 and up to 1")
        return tuple(weights.tolist())

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """(V, wU) of rows that weights make no longer; the constant is weighted too, and need not cancel."""
        del lattice
        self._expect(noisy_layout(self.dim, self.classes, bias=self.bias))
        sensitivity = ffc_sensitivity(
            noise.weight, neighbours=noise.neighbours, nonnegative=noise.nonnegative
        )
        return Release(sensitivity, noise.weight)

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Weighted FFC statistics; of whole numbers under noise."""
        if isinstance(lattice, FeaturesLattice):
            self._expect(noisy_layout(self.dim, self.classes, bias=self.bias))
            return WeightedMoments(self.layout, lattice, np.asarray(self._weights()), bias=self.bias)
        self._expect(ffc_layout(self.dim, self.classes, bias=self.bias))
        statistics = FFCStatistics(
            self.dim,
            self.classes,
            bias=self.bias,
            normalise=normalise,
            track_records=False,
            class_weights=np.asarray(self._weights()),
        )
        return Vectors(statistics, self.layout.elements)

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Weighted FFC statistics; of a noisy sum `NoisySums`."""
        total, weights = total_of(gathering), self._weights()
        if summed.mechanism is not None:
            sums = NoisySums.of(self.layout, total, summed, bias=self.bias)
            return replace(sums, U=sums.U * np.sqrt(weights))
        check_sums(
            self.blocks, summed.lattice, total, members=summed.members, bias=self.bias, class_weights=weights
        )
        return FFCStatistics.from_sums(
            self.blocks,
            summed.lattice,
            total,
            bias=self.bias,
            members=summed.members,
            class_weights=np.asarray(weights),
        )

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The weighted ridge head; of a noisy sum by shrinkage."""
        if summed.mechanism is not None:
            sums: NoisySums = statistics
            answer = sums.answer(Head(sums.solution.weights, sums.solution.bias, ()))
            return replace(answer, records=self._number("records"))  # the trace says how many weighted ones
        return ridge_answer(solved(statistics, summed), summed)


def _counts(statistics: Any) -> Floats:
    """Records of each class, none less than noise explains: a class that it drowned would make all others weigh nothing."""
    counted = statistics.class_counts if isinstance(statistics, NoisySums) else statistics
    if not (deviation := getattr(counted, "deviation", 0.0)):
        exact: Floats = np.asarray(counted.counts)
        return exact
    floored: Floats = np.maximum(counted.counts, max(1.0, _NOISE_FLOOR * deviation))
    return floored


_NOISE_FLOOR = 4.0


class RandomFeatureRidge(Question):
    """FFC's sums of random Fourier features, drawn from the round's context, exact or under noise (Fed3R-RF: Fanì et al. 2024)."""

    name: ClassVar[str] = "rff"
    aimed = True
    title: ClassVar[str] = "kernel ridge head by random features; their number and λ by GCV"
    learns: ClassVar[str] = "Σφφᵀ, Σφ·one_hot(y)ᵀ and the records of each class, φ the random features"
    lattices: ClassVar[tuple[str, ...]] = ("sums", "features")
    may_rest_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias", "mean")
    takes_noise: ClassVar[bool] = True
    rests_on_noisy: ClassVar[bool] = True
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {
        "size": (int, 1024),
        "bandwidth": (float, None),
        "axes": (int, None),
    }

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`size` is D, even; `bandwidth` σ, by default √½ times the root mean squared distance of two records; `axes` to project to first."""
        size, axes = int(wish.parameters["size"]), wish.parameters.get("axes")
        bandwidth = wish.parameters.get("bandwidth")
        material = {}
        if axes is not None:
            material["axes"] = axes_of(cls.name, earlier, int(axes))
        if bandwidth is None:
            bandwidth = float(f"{_bandwidth(earlier):.4g}")  # two sums a rounding apart tell the same
        RandomFeatures(1, size, float(bandwidth), b"")  # refuses what is none
        blocks = noisy_layout(size, wish.classes) if wish.noisy else ffc_layout(size, wish.classes)
        layout = blocks.having(
            dim=wish.dim, classes=wish.classes, size=size, bandwidth=float(bandwidth), axes=axes
        )
        return Asked(layout, material)

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
        mapped = self.dim if self.layout.parameter("axes") is None else self._number("axes")
        if not self.noisy:
            self._expect(ffc_layout(self._number("size"), self.classes))
        return RandomFeatures(mapped, self._number("size"), self._real("bandwidth"), self.context)

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """FFC statistics of φ."""
        phi, axes = self._map(), self._axes()
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        statistics = FFCStatistics(phi.size, self.classes, track_records=False, normalise=True, lattice=own)

        def mapped(features: Array) -> Floats:
            if axes is None:
                return phi(features, normalise=normalise, total=self.noisy)
            short = projected(features, axes, normalise=normalise, total=self.noisy)
            return phi(short, normalise=True, total=self.noisy)

        return Mapped(Vectors(statistics, self.layout.elements), mapped)

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """FFC statistics of φ; of a noisy sum `NoisySums`."""
        total = total_of(gathering)
        if summed.mechanism is not None:
            return NoisySums.of(self.layout, total, summed)
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
        head = phi.head(solution, self._axes())
        return ridge_answer(solution, summed, head, roundings=whole.size / phi.size)

    def _noisy_answer(self, sums: NoisySums) -> Answer:
        linear = Head(sums.solution.weights, None, ())
        return sums.answer(self._map().head(linear, self._axes()))


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


def axes_of(name: str, earlier: Earlier | None, size: int) -> Floats:
    """Principal axes of an earlier round's V; CalibrationError where there is none."""
    pooled = None if earlier is None else earlier.statistics
    if isinstance(pooled, NoisySums):
        rows = len(pooled.V) - pooled.bias
        return np.ascontiguousarray(leading_axes(pooled.V[:rows, :rows], size))
    if not isinstance(pooled, FFCStatistics):
        raise CalibrationError(f"axes of a {name} round come from a round of ffc: name one that it rests on")
    return np.ascontiguousarray(principal_axes(pooled, size))
