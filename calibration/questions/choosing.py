"""Rounds that choose λ by records that were not fitted: by folds, or by leaving one out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.checks import check_sums
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.folds import FoldedStatistics, fold_curve
from calibration.head import Head
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layout import in_pieces
from calibration.layouts import ffc_layout, fold_layout
from calibration.loo import LeaveOneOutStatistics, RidgePath, ridge_path
from calibration.noisy_choice import (
    FACTORS,
    SQUARE_MAX,
    NoisyFolds,
    NoisyLeaving,
    NoisyPath,
    leaving_layout,
    noisy_fold_layout,
)
from calibration.privacy.sensitivity import Release, fold_sensitivity, path_sensitivity
from calibration.privacy.solving import shrunk
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
from calibration.questions.ffc import NoisySums
from calibration.questions.ridge import grid_of, ridge_answer
from calibration.ridge import solve_ffc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Integers


class Folds(Question):
    """FFC's sums of each of K folds, from which λ follows by cross-validation."""

    name: ClassVar[str] = "folds"
    title: ClassVar[str] = "ridge head; λ by K-fold cross-validation"
    learns: ClassVar[str] = "FFC's sums of each fold of the records, over all members together"
    lattices: ClassVar[tuple[str, ...]] = ("sums", "features")
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"folds": (int, 5), "bias": (bool, False)}
    combines: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`folds` is K, from 2 to 100."""
        del earlier
        folds, bias = int(wish.parameters["folds"]), bool(wish.parameters["bias"])
        if not 2 <= folds <= 100:
            raise CalibrationError(f"{folds} folds: take 2 to 100")
        if wish.noisy:
            layout = noisy_fold_layout(wish.dim + bias, wish.classes, folds)
        else:
            layout = fold_layout(wish.dim, wish.classes, folds, bias=bias)
        return Asked(layout.having(dim=wish.dim, classes=wish.classes, folds=folds, bias=bias or None))

    @property
    def rows(self) -> int:
        """l, with the constant."""
        return self.dim + self.bias

    @property
    def roundings(self) -> float:
        """Each fold's sums are rounded by themselves."""
        return float(self._number("folds"))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Statistics of each fold, under noise without its counts."""
        folds = self._number("folds")
        if not self.noisy:
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
            ),
            self.layout.elements // folds,
        )

    @property
    def noisy(self) -> bool:
        """Whether the layout is one for noise."""
        layout = noisy_fold_layout(self.rows, self.classes, self._number("folds"))
        return self.blocks == layout

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """(V, wU) of the one fold that a record stands in."""
        self._expect(noisy_fold_layout(self.rows, self.classes, self._number("folds")))
        sensitivity = fold_sensitivity(
            noise.weight,
            neighbours=noise.neighbours,
            nonnegative=noise.nonnegative,
            constant=lattice.constant_share if self.bias else 0.0,
        )
        return Release(sensitivity, noise.weight)

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Folds, each checked by itself; of a noisy sum `NoisyFolds`."""
        total, folds = total_of(gathering), self._number("folds")
        if summed.mechanism is not None:
            blocks, lattice = self.layout.unflatten(total), summed.lattice
            return NoisyFolds(
                np.array([lattice.decode(blocks[f"V.{fold}"], 2) for fold in range(folds)]),
                np.array([lattice.decode(blocks[f"U.{fold}"], 1) for fold in range(folds)]),
                summed.mechanism.deviation("V.0", summed.members),
            )
        one = ffc_layout(self.dim, self.classes, bias=self.bias)
        for part in np.split(total, folds):
            check_sums(one, summed.lattice, part, members=summed.members, bias=self.bias)
        return FoldedStatistics.from_sums(
            self.blocks, summed.lattice, total, bias=self.bias, members=summed.members
        )

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The head at the λ of the smallest error over the folds; under noise beside what shrinkage leaves of the spectrum."""
        if summed.mechanism is not None:
            return self._noisy_answer(statistics)
        total = statistics.total
        curve = fold_curve(statistics, grid_of(total, summed, roundings=self.roundings))
        solution = solve_ffc(total, curve.ridge)
        arrays = {"grid": curve.grid, "errors": curve.errors, "records": curve.records}
        return ridge_answer(
            solution,
            summed,
            roundings=self.roundings,
            chosen_by="folds",
            grid=curve.grid,
            errors=curve.mean,
            documents={"folds": Document(arrays)},
        )

    def _noisy_answer(self, sums: NoisyFolds) -> Answer:
        grid, records = FACTORS * sums.edge, max(1, sums.records)
        return Answer(
            records,
            sums.head(bias=self.bias),
            chosen_by="folds",
            grid=grid,
            errors=np.maximum(sums.errors.sum(axis=0) / records + 1, 0),
            ridge=float(grid[sums.best]),
            documents={"folds": Document({"grid": grid, "errors": sums.errors}, {"edge": sums.edge})},
        )


class _Folds:
    def __init__(self, folded: FoldedStatistics, elements: int) -> None:
        self._folded, self._elements = folded, elements

    @property
    def records(self) -> int:
        return sum(fold.records for fold in self._folded.folds)

    def update(self, features: Array, labels: Array) -> None:
        self._folded.update(features, labels)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        folds = [fold.vector(lattice)[: self._elements] for fold in self._folded.folds]
        return in_pieces(np.concatenate(folds), elements)


class LeaveOneOut(Question):
    """Each record's error when it is left out, at each λ: a second round over the records of an FFC round."""

    name: ClassVar[str] = "loo"
    aimed = True
    title: ClassVar[str] = "ridge head; λ by exact leave-one-out, a second round over the same records"
    learns: ClassVar[str] = (
        "for each λ the records' squared errors, hits and leverages without themselves, added up; "
        "members learn Σzzᵀ and Σz·one_hot(y)ᵀ of the first round"
    )
    rests_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias")
    takes_noise: ClassVar[bool] = True
    rests_on_noisy: ClassVar[bool] = True

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The first round's spectrum and projections are material."""
        assert earlier is not None
        if wish.noisy != isinstance(earlier.statistics, NoisySums):
            raise CalibrationError("a loo round is noisy if and only if the round is that it rests on")
        if wish.noisy:
            return _leaving(wish, earlier.statistics)
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
        """Errors of the member's own records, in whole steps under noise."""
        if isinstance(lattice, FeaturesLattice):
            self._expect(leaving_layout())
            return NoisyLeaving(self.layout, lattice, self._noisy_path())
        statistics = LeaveOneOutStatistics(self._path())
        self._expect(statistics.layout)
        return Judged(statistics, normalise=normalise)

    def _noisy_path(self) -> NoisyPath:
        rows = self.dim + self.bias
        values = self._array("values", rows)
        if not (values >= 0).all():
            raise LayoutMismatch("the material's values are not those of a shrunk spectrum")
        return NoisyPath(
            vectors=self._array("vectors", rows, rows),
            values=values,
            projections=self._array("projections", rows, self.classes),
            edge=self._real("edge"),
            bias=self.bias,
        )

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """Squares and hits, each from 0 to 1 a record, whichever it is."""
        del noise, lattice
        self._expect(leaving_layout())
        return Release(path_sensitivity(len(FACTORS)))

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Errors of all records, which are those of the first round as far as sums tell."""
        if summed.mechanism is not None:
            blocks = self.layout.unflatten(total_of(gathering))
            return {name: summed.lattice.decode(block, 2) for name, block in blocks.items()}
        statistics = LeaveOneOutStatistics(self._path())
        assert isinstance(summed.lattice, SumsLattice)
        statistics.add_sums(summed.lattice, total_of(gathering), members=summed.members)
        statistics.check_same_records()
        return statistics

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The first round's head at the λ of the smallest error."""
        if summed.mechanism is not None:
            return self._noisy_answer(statistics)
        path: RidgePath = statistics.path
        solution = _solution_at(path, statistics.ridge)
        arrays = {
            "grid": path.grid,
            "errors": np.asarray(statistics.errors),
            "accuracies": np.asarray(statistics.accuracies),
            "clipped": np.array(statistics.clipped),
        }
        return Answer(
            statistics.records,
            solution,
            chosen_by="leave-one-out",
            grid=path.grid,
            errors=statistics.errors,
            ridge=statistics.ridge,
            documents={"leave-one-out": Document(arrays)},
        )

    def _noisy_answer(self, sums: Mapping[str, Any]) -> Answer:
        path, records = self._noisy_path(), self._number("records")
        errors = np.maximum(sums["squares"] * SQUARE_MAX / records, 0)
        best = int(sums["squares"].argmin())
        accuracies = (sums["hits"] / records).clip(0, 1)
        document = Document(
            {"grid": path.grid, "errors": errors, "accuracies": accuracies}, {"edge": path.edge}
        )
        return Answer(
            records,
            path.head(best),
            chosen_by="leave-one-out",
            grid=path.grid,
            errors=errors,
            ridge=float(path.grid[best]),
            documents={"leave-one-out": document},
        )


def _leaving(wish: Wish, sums: NoisySums) -> Asked:
    found = shrunk(sums.V, sums.deviation)
    if (len(found.eigenvalues) - sums.bias, sums.U.shape[1]) != (wish.dim, wish.classes):
        raise CalibrationError("the round before has another number of features or classes")
    layout = leaving_layout().having(
        dim=wish.dim,
        classes=wish.classes,
        bias=sums.bias or None,
        records=max(1, sums.records),
        edge=found.edge,
    )
    projections = found.vectors.T @ sums.U
    material = {"vectors": found.vectors, "values": found.eigenvalues, "projections": projections}
    return Asked(layout, {name: np.ascontiguousarray(array) for name, array in material.items()})


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
