"""Rounds that refine a ridge head by gradients of the logistic loss, exact or under noise: one after another (Mehta et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.centred import CentredHead
from calibration.dense import eigh
from calibration.errors import CalibrationError, LayoutMismatch, SumCheckFailed
from calibration.ffc import FFCStatistics
from calibration.gradient import GradientStatistics, logistic_start, stepped
from calibration.head import Head
from calibration.head_file import arrays_of, form_of
from calibration.lattice import FeaturesLattice
from calibration.layout import DenseBlock, Layout, in_pieces
from calibration.privacy.mechanism import gradient_layout
from calibration.privacy.sensitivity import Release, gradient_sensitivity
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Earlier,
    Question,
    RoundLattice,
    Summed,
    Wish,
    total_of,
)
from calibration.questions.given import given, head_given
from calibration.ridge import solve_ffc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Floats, Integers

_INVERSE = "inverse"


@dataclass(frozen=True, eq=False)
class Refined:
    """What a round of gradients pools.

    Attributes:
        gradient: (l, C), in units of the clip.
        records: N; under noise that of the round before.
        inverse: (l, l) of the second moments that steps are preconditioned by.
        number: of the round, from 1.
        rounds: of them that there are to be.
    """

    gradient: Floats
    records: int
    inverse: Floats
    number: int
    rounds: int


class Refinement(Question):
    """Σ z·(softmax(Wᵀz) − one_hot(y))ᵀ, each record's clipped, of the head W of the round before."""

    name: ClassVar[str] = "refine"
    aimed = True
    title: ClassVar[str] = (
        "logistic head: a step from the head of the round before, by its records' gradients"
    )
    learns: ClassVar[str] = (
        "the records' gradients at the head of the round before, each clipped, over all members together; members learn that "
        "head and the inverse of the Σzzᵀ that the first round summed"
    )
    lattices: ClassVar[tuple[str, ...]] = ("sums", "features")
    rests_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias", "refine")
    rests_on_noisy: ClassVar[bool] = True
    rests_on_centred: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {
        "rounds": (int, 4),
        "clip": (float, 1.0),
        "step": (float, 2.0),
    }

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """`rounds` says how many of these there are to be, `clip` how long r may be, `step` how far to go, 2 at most."""
        assert earlier is not None
        assert earlier.head is not None
        rounds, step, clip = (wish.parameters[name] for name in ("rounds", "step", "clip"))
        pooled, head, number = earlier.statistics, earlier.head, 1
        if isinstance(pooled, Refined):
            number = pooled.number + 1
        else:
            head = logistic_start(head)
        if (head.dim, head.classes) != (wish.dim, wish.classes):
            raise CalibrationError(
                f"the head is of {head.dim} features and {head.classes} classes, not {wish.dim} and {wish.classes}"
            )
        if not (number <= int(rounds) <= 100 and 0 < float(step) <= 2 and 0 < float(clip) <= 2):
            raise CalibrationError(
                f"round {number} of {rounds} with a step of {step} and gradients clipped to {clip}: "
                "take 1 to 100 rounds, of which this is one, and step and clip above 0 and up to 2"
            )
        form, arrays = given(head)
        bias = head.bias is not None
        layout = _layout(wish.dim + bias, wish.classes, noisy=wish.noisy).having(
            dim=wish.dim,
            classes=wish.classes,
            bias=bias or None,
            head=form,
            number=number,
            records=max(1, pooled.records) if wish.noisy else None,
            **wish.parameters,
        )
        return Asked(layout, {**arrays, _INVERSE: np.ascontiguousarray(_inverse(pooled))})

    @property
    def goes_on(self) -> bool:
        """Whether this is not yet the last of its rounds."""
        return self._number("number") < self._number("rounds")

    def _head(self) -> Head:
        head = head_given(self, _INVERSE)
        if type(head) not in {Head, CentredHead} or (head.bias is not None) != self.bias:
            raise LayoutMismatch("the head that this round refines is not the linear one that it says")
        return head

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Gradients, of integer rows on a features lattice."""
        noisy = len(self.layout.blocks) == 1
        self._expect(_layout(self.dim + self.bias, self.classes, noisy=noisy))
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        statistics = GradientStatistics(self._head(), clip=self._real("clip"), lattice=own, total=noisy)
        return _Gradients(statistics, self.layout.elements, normalise=normalise)

    def gathered(self, gathering: Any, summed: Summed) -> Refined:
        """The sum; an exact one is no longer than it has records."""
        blocks, lattice = self.layout.unflatten(total_of(gathering)), summed.lattice
        gradient, rows = lattice.decode(blocks["G"], 2), self.dim + self.bias
        if "n" in blocks:
            count = float(lattice.decode(blocks["n"])[0])
            slack = math.sqrt(gradient.size) * (summed.members + 1) / lattice.unit(2)
            if not (count >= 1 and count.is_integer() and np.linalg.norm(gradient) <= count + slack):
                raise SumCheckFailed(
                    f"gradients of length {np.linalg.norm(gradient):g}, of {count:g} records",
                    identity="gradient",
                )
            records = int(count)
        else:
            records = self._number("records")
        inverse = self._array(_INVERSE, rows, rows)
        return Refined(gradient, records, inverse, self._number("number"), self._number("rounds"))

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """G."""
        del lattice
        return Release(gradient_sensitivity(noise.neighbours))

    def check_head(self, head: Head) -> None:
        """Of the kind and size of the head that was refined."""
        before = self._head()
        seen, expected = arrays_of(head), arrays_of(before)
        same = {name: array.shape for name, array in seen.items()} == {
            name: array.shape for name, array in expected.items()
        }
        none = np.zeros(0)
        centred_alike = np.array_equal(seen.get("centre", none), expected.get("centre", none))
        if form_of(head) != form_of(before) or not same or not centred_alike:
            raise LayoutMismatch("the head is not of the kind that this round refines")

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The head after the step."""
        del summed
        gradient = statistics.gradient * self._real("clip")
        head = stepped(self._head(), gradient, statistics.inverse, self._real("step"))
        return Answer(statistics.records, head, chosen_by="gradient")


class _Gradients:
    def __init__(self, statistics: GradientStatistics, elements: int, *, normalise: bool) -> None:
        self._statistics, self._elements, self._normalise = statistics, elements, normalise

    @property
    def records(self) -> int:
        return self._statistics.records

    def update(self, features: Array, labels: Array) -> None:
        self._statistics.update(features, labels, normalise=self._normalise)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        return in_pieces(self._statistics.vector(lattice)[: self._elements], elements)


def _layout(rows: int, classes: int, *, noisy: bool) -> Layout:
    """G, and the records where the sum is exact."""
    noisy_layout = gradient_layout(rows, classes)
    return noisy_layout if noisy else Layout((*noisy_layout.blocks, DenseBlock("n", (1,))))


def _inverse(pooled: Any) -> Floats:
    """(l, l): of an exact V with the ridge that GCV takes, of a noisy one shrunk, of a round of gradients its own."""
    if isinstance(pooled, Refined):
        return pooled.inverse
    if not isinstance(pooled, FFCStatistics):
        inverse: Floats = pooled.solution.inverse
        return inverse
    ridge = solve_ffc(pooled).ridge
    d, Q = eigh(pooled.V)
    exact: Floats = (Q / (np.maximum(d, 0.0) + ridge)) @ Q.T
    return exact
