"""FFC's own round: V, U and counts, exact or under noise, and the other heads that follow from the same sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.centred import CentredHead, centred
from calibration.checks import check_sums
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.ffc import FFCStatistics
from calibration.head import Head
from calibration.head_file import Calibrated
from calibration.lattice import SumsLattice
from calibration.layout import Layout, Scalar
from calibration.layouts import ffc_dimensions, ffc_layout
from calibration.lda import nearest_class_mean, solve_lda
from calibration.moments import IntegerMoments
from calibration.noisy_lda import NoisyMoments, posterior_of
from calibration.posterior import ridge_posterior
from calibration.privacy import (
    NoisySolution,
    Release,
    ffc_sensitivity,
    noisy_layout,
    solve_noisy,
)
from calibration.privacy.mechanism import COUNTS_WEIGHT
from calibration.questions.base import (
    REFUSED,
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
from calibration.questions.ridge import grid_of, ridge_answer
from calibration.ridge import solve_ffc
from calibration.rows import as_features

_SQRT_HALF = float(np.sqrt(0.5))

if TYPE_CHECKING:
    from calibration.lattice import FeaturesLattice
    from calibration.privacy import NoiseTerms
    from calibration.rows import Floats, Integers
    from calibration.solution import Solution


def _if_any(make: Callable[..., Document], *found: Any) -> Document:
    """A document, or why none follows from these sums: the round has its head all the same."""
    try:
        return make(*found)
    except CalibrationError as error:
        return Document({}, {REFUSED: f"{type(error).__name__}: {error}"})


def _lda(statistics: FFCStatistics, _: Solution) -> Document:
    return _head(solve_lda(statistics))


def _ncm(statistics: FFCStatistics, _: Solution) -> Document:
    return _head(nearest_class_mean(statistics))


def _posterior(statistics: FFCStatistics, solution: Solution) -> Document:
    found = ridge_posterior(statistics, solution)
    constant = {} if found.constant is None else {"constant": found.constant}
    return Document({"whitening": found.whitening, "variances": found.variances}, constant)


def _pooled(statistics: FFCStatistics, _: Solution) -> Document:
    arrays = {"V": np.array(statistics.V), "U": np.ascontiguousarray(statistics.U)}
    return Document({**arrays, "counts": np.array(statistics.counts)}, {"bias": statistics.bias})


PUBLISHED: dict[str, Callable[[FFCStatistics, Solution], Document]] = {
    "lda": _lda,
    "ncm": _ncm,
    "posterior": _posterior,
    "pooled": _pooled,
}
"""What a round of FFC can publish beside its head, since it follows from the same sums."""


def _head(head: Head) -> Document:
    plain = Calibrated(Head(head.weights, head.bias, head.empty_classes))
    return Document(dict(plain.arrays), plain.notes)


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Noisy counts of the classes.

    Attributes:
        counts: (C,) real numbers, also below 0.
        deviation: of the noise.
    """

    counts: Floats
    deviation: float


@dataclass(frozen=True, eq=False)
class NoisySums:
    """What a noisy round pools.

    Attributes:
        V: (l, l) V̂.
        U: (l, C) Û.
        deviation: σ_V.
        bias: whether the last column is the constant.
    """

    V: Floats
    U: Floats
    deviation: float
    bias: bool
    column_deviation: float = 0.0
    """σ_U."""
    named: ClassCounts | None = None
    """Counts that the round released by themselves; of rows with a constant its column says them."""

    @classmethod
    def of(cls, layout: Layout, total: Integers, summed: Summed, *, bias: bool = False) -> NoisySums:
        """From the centred sum of a noisy round, (layout.elements,)."""
        assert summed.mechanism is not None
        blocks, lattice = layout.unflatten(total), summed.lattice
        V, U = lattice.decode(blocks["V"], 2), lattice.decode(blocks["U"], 1)
        of_V, of_U = (summed.mechanism.deviation(name, summed.members) for name in ("V", "U"))
        named = None
        if "N" in blocks:
            of_N = summed.mechanism.deviation("N", summed.members)
            named = ClassCounts(lattice.decode(blocks["N"], 2), of_N)
        return cls(V, U, of_V, bias, of_U, named)

    @cached_property
    def solution(self) -> NoisySolution:
        """By shrinkage."""
        return solve_noisy(self.V, self.U, self.deviation, bias=self.bias)

    @property
    def class_counts(self) -> ClassCounts:
        """N̂, or what the constant column of Û says of the classes; CalibrationError where there is neither."""
        if self.named is not None:
            return self.named
        if not self.bias:
            raise CalibrationError(
                "a noisy round of ffc without a bias counts no classes unless it publishes what rests on counts"
            )
        return ClassCounts(self.U[-1] / _SQRT_HALF, self.column_deviation / _SQRT_HALF)

    @property
    def moments(self) -> NoisyMoments:
        """Of unit features, without the constant."""
        counted, own, scale = self.class_counts, len(self.V) - self.bias, 2.0 if self.bias else 1.0
        return NoisyMoments(
            scale * self.V[:own, :own],
            math.sqrt(scale) * self.U[:own],
            counted.counts,
            scale * self.deviation,
            math.sqrt(scale) * self.column_deviation,
            counted.deviation,
        )

    @property
    def posterior(self) -> Document:
        """Beside the head by shrinkage."""
        counts, deviation = self.class_counts.counts, self.column_deviation
        whitening, variances = posterior_of(self.solution, self.U, counts, deviation)
        notes = {"constant": _SQRT_HALF} if self.bias else {}
        return Document({"whitening": whitening, "variances": variances}, notes)

    @property
    def records(self) -> int:
        """N as tr V̂ has it; 0 where noise made it negative."""
        return max(0, round(self.solution.records))

    def answer(self, head: Head, **documents: Document) -> Answer:
        """The head that follows from the solution, with the spectrum beside it."""
        found = self.solution
        spectrum = Document(
            {"eigenvalues": found.observed, "shrunk": found.eigenvalues},
            {"edge": found.edge, "above": found.above},
        )
        return Answer(
            self.records, head, chosen_by="shrinkage", documents={"spectrum": spectrum, **documents}
        )


NOISY_PUBLISHED: dict[str, Callable[[NoisySums], Document]] = {
    "lda": lambda sums: _head(sums.moments.lda()),
    "ncm": lambda sums: _head(sums.moments.nearest_mean()),
    "posterior": lambda sums: sums.posterior,
}
"""What of `PUBLISHED` a noisy round can publish; pooled sums are mixed with a member's own, which takes exact ones."""


class FFC(Question):
    """Σzzᵀ, Σz·one_hot(y)ᵀ and counts (Dong et al. 2022, eq. 9)."""

    name: ClassVar[str] = "ffc"
    title: ClassVar[str] = "ridge head from second moments; λ by GCV"
    learns: ClassVar[str] = "Σzzᵀ, Σz·one_hot(y)ᵀ and the records of each class, over all members together"
    may_rest_on: ClassVar[tuple[str, ...]] = ("mean",)
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"publish": (str, None)}
    combines: ClassVar[bool] = True
    with_bias: ClassVar[bool] = False

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`publish` names, with commas between them, what of `PUBLISHED` members may read; a round of means centres features, under noise."""
        publish = published(str(wish.parameters.get("publish", "")))
        if earlier is not None and not wish.noisy:
            raise CalibrationError("features are centred under noise alone: rest on no round of means")
        if earlier is not None and publish:
            raise CalibrationError(
                f"{', '.join(publish)} can't be published of centred features: rest on no round of means"
            )
        if wish.noisy:
            if unknown := [name for name in publish if name not in NOISY_PUBLISHED]:
                raise CalibrationError(
                    f"{', '.join(unknown)} can't be published of a noisy sum: a member's own sums are mixed with exact ones"
                )
            counts = bool(publish) and not cls.with_bias
            blocks = noisy_layout(wish.dim, wish.classes, bias=cls.with_bias, counts=counts)
            return _centred(blocks.having(publish=",".join(publish) or None), wish, earlier)
        layout = ffc_layout(wish.dim, wish.classes, bias=cls.with_bias)
        return Asked(layout.having(publish=",".join(publish) or None))

    @property
    def _centre(self) -> Floats | None:
        if self.layout.parameter("centre") is None:
            return None
        return self._array("centre", self.dim)

    @property
    def noisy(self) -> bool:
        """Whether the layout is one for noise."""
        return [block.name for block in self.layout.blocks] in (["V", "U"], ["V", "U", "N"])

    @property
    def _counts(self) -> bool:
        """Whether counts are released by themselves, under noise."""
        return self.layout.blocks[-1].name == "N"

    @property
    def bias(self) -> bool:
        """By the question's name."""
        return self.with_bias

    @property
    def dim(self) -> int:
        """By the blocks."""
        return self._dimensions()[0]

    @property
    def classes(self) -> int:
        """By the blocks."""
        return self._dimensions()[1]

    def _dimensions(self) -> tuple[int, int]:
        centre = self.layout.parameter("centre")
        if not (centre is None or centre is True):
            raise LayoutMismatch(
                f"centre is {centre!r} in the terms of a {self.name} round: true, or left out"
            )
        if self.noisy:
            rows, classes = self.layout.blocks[1].shape[0], self.layout.blocks[1].shape[-1]
            dim, counts = rows - self.with_bias, self._counts
            self._expect(noisy_layout(dim, classes, bias=self.with_bias, counts=counts))
            return dim, classes
        if centre:
            raise LayoutMismatch(
                "features are centred under noise alone, and the layout is that of an exact sum"
            )
        return ffc_dimensions(self.blocks, bias=self.with_bias)

    @property
    def rows(self) -> int:
        """l, with the constant."""
        return self.dim + self.bias

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """(V, wU), of rows that end in a constant where there is a bias."""
        check_sign(noise, mapped=self.layout.parameter("centre") is not None)
        _ = self._dimensions()
        sensitivity = ffc_sensitivity(
            noise.weight,
            counts_weight=COUNTS_WEIGHT if self._counts else 0.0,
            neighbours=noise.neighbours,
            nonnegative=noise.nonnegative,
            constant=lattice.constant_share if self.with_bias else 0.0,
        )
        return Release(sensitivity, noise.weight, COUNTS_WEIGHT if self._counts else 0.0)

    def takes(self, layout: Layout) -> bool:
        """What is published changes no number, the mean that is taken off changes all."""
        uncentred = self.layout.parameter("centre") is layout.parameter("centre") is None
        return layout == self.layout or (uncentred and layout.blocks == self.layout.blocks)

    def check_head(self, head: Head) -> None:
        """Linear, or one that takes off the round's mean."""
        centre = self._centre
        if centre is None:
            super().check_head(head)
        elif not isinstance(head, CentredHead) or not np.array_equal(head.centre, centre):
            raise LayoutMismatch("the head does not take off the mean that this round did")
        else:
            super().check_head(Head(head.weights, head.bias, head.empty_classes))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """FFC statistics; under noise sums of integer rows."""
        dim, classes = self._dimensions()
        centre, own = self._centre, self._integers(lattice)
        if own is None:
            return FFCStatistics(dim, classes, bias=self.with_bias, normalise=normalise, track_records=False)
        sums = IntegerMoments(self.layout, own, bias=self.with_bias)
        if centre is None:
            return sums
        return Mapped(sums, lambda features: centred(as_features(features, dim), centre, total=True))

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """FFC statistics; of a noisy sum `NoisySums`, since no identity of exact ones survives noise."""
        total = total_of(gathering)
        if summed.mechanism is not None:
            return NoisySums.of(self.layout, total, summed, bias=self.with_bias)
        assert isinstance(summed.lattice, SumsLattice)
        check_sums(self.blocks, summed.lattice, total, members=summed.members, bias=self.with_bias)
        return FFCStatistics.from_sums(
            self.blocks, summed.lattice, total, bias=self.with_bias, members=summed.members
        )

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The ridge head, and what is to be published beside it."""
        if summed.mechanism is not None:
            return self._noisy_answer(statistics)
        solution = solve_ffc(statistics, grid_of(statistics, summed), in_place=True)
        wanted = published(str(self.layout.parameter("publish") or ""))
        documents = {name: _if_any(PUBLISHED[name], statistics, solution) for name in wanted}
        return ridge_answer(solution, summed, self._headed(solution), documents=documents)

    def _noisy_answer(self, sums: NoisySums) -> Answer:
        wanted = published(str(self.layout.parameter("publish") or ""))
        documents = {name: _if_any(NOISY_PUBLISHED[name], sums) for name in wanted}
        head = Head(sums.solution.weights, sums.solution.bias, ())
        return sums.answer(self._headed(head), **documents)

    def _headed(self, head: Head) -> Head:
        """With the mean that features are centred by, if they are."""
        centre = self._centre
        return head if centre is None else CentredHead(head.weights, head.bias, head.empty_classes, centre)


def _centred(layout: Layout, wish: Wish, earlier: Earlier | None) -> Asked:
    """A layout, with the mean as material where the round rests on one."""
    if earlier is None:
        return Asked(layout)
    mean = earlier.statistics.mean
    if mean.shape != (wish.dim,):
        raise CalibrationError(f"the mean is of {len(mean)} features, not {wish.dim}")
    return Asked(layout.having(centre=True), {"centre": np.ascontiguousarray(mean)})


class FFCBias(FFC):
    """The same of z' = (z, 1)/√2."""

    name: ClassVar[str] = "ffc-bias"
    title: ClassVar[str] = "ridge head with a constant; λ by GCV"
    with_bias: ClassVar[bool] = True


def published(names: str) -> tuple[str, ...]:
    """The names in a `publish` parameter, in order, each once; CalibrationError for one that is none."""
    wanted = tuple(sorted({name.strip() for name in names.split(",") if name.strip()}))
    if unknown := [name for name in wanted if name not in PUBLISHED]:
        raise CalibrationError(
            f"{', '.join(unknown)} can't be published; pass some of {', '.join(PUBLISHED)}"
        )
    return wanted
