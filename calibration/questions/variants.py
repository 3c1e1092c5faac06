"""Rounds that end in a ridge head of another kind: classes that count alike, λ by folds or leave-one-out, random features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.checks import check_sums
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.ffc import FFCStatistics, balanced_weights
from calibration.folds import FoldedStatistics, fold_curve
from calibration.head import Head
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layout import in_pieces
from calibration.layouts import ffc_layout, fold_layout
from calibration.loo import LeaveOneOutStatistics, RidgePath, ridge_path
from calibration.privacy import Release, ffc_sensitivity, noisy_layout
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Document,
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
    mean_squared_distance,
    principal_axes,
    projected,
)
from calibration.ridge import solve_ffc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Floats, Integers


class Balanced(Question):
    """FFC's sums with weights that let every class count alike, known from a round before."""

    name: ClassVar[str] = "balanced"
    title: ClassVar[str] = "ridge head for which every class counts alike; needs a round of counts before"
    learns: ClassVar[str] = "the same as FFC's, each record weighted by its class"
    rests_on: ClassVar[tuple[str, ...]] = ("counts", "ffc", "ffc-bias")
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"bias": (bool, False)}

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The weights are material; classes that had no records weigh 1."""
        assert earlier is not None
        weights = np.asarray(balanced_weights(earlier.statistics.counts))
        if len(weights) != wish.classes:
            raise CalibrationError(f"the round before counted {len(weights)} classes, not {wish.classes}")
        bias = bool(wish.parameters.get("bias"))
        layout = ffc_layout(wish.dim, wish.classes, bias=bias)
        return Asked(
            layout.having(dim=wish.dim, classes=wish.classes, bias=bias or None), {"class_weights": weights}
        )

    @property
    def rows(self) -> int:
        """l, with the constant."""
        return self.dim + self.bias

    def _weights(self) -> tuple[float, ...]:
        return tuple(self._array("class_weights", self.classes).tolist())

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Weighted FFC statistics."""
        del lattice
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
        """Weighted FFC statistics."""
        total, weights = total_of(gathering), self._weights()
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
        """The weighted ridge head."""
        return ridge_answer(solved(statistics, summed), summed)


class Folds(Question):
    """FFC's sums of each of K folds, from which λ follows by cross-validation."""

    name: ClassVar[str] = "folds"
    title: ClassVar[str] = "ridge head; λ by K-fold cross-validation"
    learns: ClassVar[str] = "FFC's sums of each fold of the records, over all members together"
    lattices: ClassVar[tuple[str, ...]] = ("sums", "features")
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"folds": (int, 5), "bias": (bool, False)}
    combines: ClassVar[bool] = True

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`folds` is K, from 2 to 100."""
        del earlier
        folds, bias = int(wish.parameters["folds"]), bool(wish.parameters["bias"])
        if not 2 <= folds <= 100:
            raise CalibrationError(f"{folds} folds: take 2 to 100")
        layout = fold_layout(wish.dim, wish.classes, folds, bias=bias)
        return Asked(layout.having(dim=wish.dim, classes=wish.classes, folds=folds, bias=bias or None))

    @property
    def rows(self) -> int:
        """l, with the constant."""
        return self.dim + self.bias

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Statistics of each fold."""
        folds = self._number("folds")
        self._expect(fold_layout(self.dim, self.classes, folds, bias=self.bias))
        own = None if lattice.name == "sums" else lattice
        return _Folds(
            FoldedStatistics(
                self.dim,
                self.classes,
                folds,
                bias=self.bias,
                normalise=normalise,
                lattice=own,
                track_records=False,
            )
        )

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Folds, each checked by itself."""
        total, folds = total_of(gathering), self._number("folds")
        one = ffc_layout(self.dim, self.classes, bias=self.bias)
        for part in np.split(total, folds):
            check_sums(one, summed.lattice, part, members=summed.members, bias=self.bias)
        return FoldedStatistics.from_sums(
            self.blocks, summed.lattice, total, bias=self.bias, members=summed.members
        )

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The head at the λ of the smallest error over the folds."""
        total = statistics.total
        curve = fold_curve(statistics, grid_of(total, summed))
        solution = solve_ffc(total, curve.ridge)
        arrays = {"grid": curve.grid, "errors": curve.errors, "records": curve.records}
        return ridge_answer(
            solution,
            summed,
            chosen_by="folds",
            grid=curve.grid,
            errors=curve.mean,
            documents={"folds": Document(arrays)},
        )


class _Folds:
    def __init__(self, folded: FoldedStatistics) -> None:
        self._folded = folded

    @property
    def records(self) -> int:
        return sum(fold.records for fold in self._folded.folds)

    def update(self, features: Array, labels: Array) -> None:
        self._folded.update(features, labels)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        return in_pieces(self._folded.vector(lattice), elements)


class LeaveOneOut(Question):
    """Each record's error when it is left out, at each λ: a second round over the records of an FFC round."""

    name: ClassVar[str] = "loo"
    title: ClassVar[str] = "ridge head; λ by exact leave-one-out, a second round over the same records"
    learns: ClassVar[str] = (
        "for each λ the records' squared errors, hits and leverages without themselves, added up; "
        "members learn Σzzᵀ and Σz·one_hot(y)ᵀ of the first round"
    )
    rests_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias")

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The first round's spectrum and projections are material."""
        assert earlier is not None
        path = ridge_path(earlier.statistics)
        if (path.projections.shape[1], len(path.values) - (path.constant is not None)) != (
            wish.classes,
            wish.dim,
        ):
            raise CalibrationError("the round before has another number of features or classes")
        layout = LeaveOneOutStatistics(path).layout.having(
            dim=wish.dim,
            classes=wish.classes,
            constant=path.constant,
            bias=True if path.constant is not None else None,
            records=path.records,
        )
        names = ("vectors", "values", "projections", "grid", "slack")
        return Asked(layout, {name: np.ascontiguousarray(getattr(path, name)) for name in names})

    def _path(self) -> RidgePath:
        rows = self.dim + self.bias
        grid = self._array("grid", None)
        if not (np.diff(grid) > 0).all() or grid[0] <= 0:
            raise LayoutMismatch("the material's grid does not ascend from above 0")
        return RidgePath(
            vectors=self._array("vectors", rows, rows),
            values=self._array("values", rows),
            projections=self._array("projections", rows, self.classes),
            grid=grid,
            constant=self._real("constant") if self.bias else None,
            records=self._number("records"),
            slack=self._array("slack", len(grid)),
        )

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Errors of the member's own records."""
        del lattice
        statistics = LeaveOneOutStatistics(self._path())
        self._expect(statistics.layout)
        return Judged(statistics, normalise=normalise)

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Errors of all records, which are those of the first round as far as sums tell."""
        statistics = LeaveOneOutStatistics(self._path())
        assert isinstance(summed.lattice, SumsLattice)
        statistics.add_sums(summed.lattice, total_of(gathering), members=summed.members)
        statistics.check_same_records()
        return statistics

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The first round's head at the λ of the smallest error."""
        path: RidgePath = statistics.path
        solution = _solution_at(path, statistics.ridge)
        arrays = {
            "grid": path.grid,
            "errors": np.asarray(statistics.errors),
            "accuracies": np.asarray(statistics.accuracies),
            "clipped": np.array(statistics.clipped),
        }
        del summed
        return Answer(
            statistics.records,
            solution,
            chosen_by="leave-one-out",
            grid=path.grid,
            errors=statistics.errors,
            ridge=statistics.ridge,
            documents={"leave-one-out": Document(arrays)},
        )


def _solution_at(path: RidgePath, ridge: float) -> Head:
    W = path.vectors @ (path.projections / (path.values + ridge)[:, None])
    empty = tuple(np.flatnonzero(~path.projections.any(axis=0)).tolist())
    if path.constant is None:
        return Head(W, None, empty)
    return Head(W[:-1] * math.sqrt(0.5), W[-1] * path.constant, empty)


class Judged:
    """Statistics of a second round as an accumulator."""

    def __init__(self, statistics: Any, *, normalise: bool) -> None:
        self._statistics, self._normalise = statistics, normalise

    @property
    def records(self) -> int:
        """N."""
        records: int = self._statistics.records
        return records

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records."""
        self._statistics.update(features, labels, normalise=self._normalise)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        """The vector."""
        return in_pieces(self._statistics.vector(lattice), elements)


class RandomFeatureRidge(Question):
    """FFC's sums of random Fourier features, drawn from the round's context, exact or under noise (Fed3R-RF: Fanì et al. 2024)."""

    name: ClassVar[str] = "rff"
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
        """`size` is D, even; `bandwidth` σ, half the mean distance of records by default; `axes` to project to first."""
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
                return phi(features, normalise=normalise)
            return phi(projected(features, axes, normalise=normalise), normalise=True, total=self.noisy)

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
        phi, solution = choose_random_features(statistics, self._map(), ridge=summed.ridges or None)
        return ridge_answer(solution, summed, phi.head(solution, self._axes()))

    def _noisy_answer(self, sums: NoisySums) -> Answer:
        linear = Head(sums.solution.weights, None, ())
        return sums.answer(self._map().head(linear, self._axes()))


def _bandwidth(earlier: Earlier | None) -> float:
    """Half the mean distance of two records, which the sums of an exact round of ffc tell, or any round of means."""
    if earlier is None:
        raise CalibrationError(
            "rff needs a bandwidth: pass one, or a round of ffc or mean to rest on, whose sums tell a scale"
        )
    told = earlier.statistics
    if isinstance(told, Mean):
        return math.sqrt(max(0.0, 1 - float(told.mean @ told.mean)))
    if not isinstance(told, FFCStatistics):
        raise CalibrationError(
            "a noisy round of ffc tells no bandwidth: pass one, or rest on a round of mean"
        )
    return math.sqrt(mean_squared_distance(told) / 2)


def axes_of(name: str, earlier: Earlier | None, size: int) -> Floats:
    """Principal axes of an earlier round's V; CalibrationError where there is none."""
    if earlier is None or not isinstance(earlier.statistics, FFCStatistics):
        raise CalibrationError(f"axes of a {name} round come from a round of ffc: name one that it rests on")
    return np.ascontiguousarray(principal_axes(earlier.statistics, size))
