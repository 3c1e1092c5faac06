"""Noisy rounds that refine a ridge head by gradients of the logistic loss, one after another (Mehta et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.centred import CentredHead
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.gradient import GradientSums, logistic_start, stepped
from calibration.head import Head
from calibration.head_file import arrays_of, form_of
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

if TYPE_CHECKING:
    from calibration.lattice import FeaturesLattice
    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Floats

_INVERSE = "inverse"


@dataclass(frozen=True, eq=False)
class Refined:
    """What a round of gradients pools.

    Attributes:
        gradient: (l, C), in units of the clip.
        records: N of the round before.
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
    title: ClassVar[str] = (
        "logistic head: a step from the head of the round before, by its records' gradients"
    )
    learns: ClassVar[str] = (
        "the records' gradients at the head of the round before, each clipped, over all members together; members learn that "
        "head and the inverse of the Σzzᵀ that the first round summed"
    )
    rests_on: ClassVar[tuple[str, ...]] = ("ffc", "ffc-bias", "refine")
    exact: ClassVar[bool] = False
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
        layout = gradient_layout(wish.dim + bias, wish.classes).having(
            dim=wish.dim,
            classes=wish.classes,
            bias=bias or None,
            head=form,
            number=number,
            records=max(1, pooled.records),
            **wish.parameters,
        )
        inverse = pooled.inverse if isinstance(pooled, Refined) else pooled.solution.inverse
        return Asked(layout, {**arrays, _INVERSE: np.ascontiguousarray(inverse)})

    @property
    def goes_on(self) -> bool:
        """Whether this is not yet the last of its rounds."""
        return self._number("number") < self._number("rounds")

    def _head(self) -> Head:
        head = head_given(self, _INVERSE)
        if type(head) not in {Head, CentredHead} or (head.bias is not None) != self.bias:
            raise LayoutMismatch("the head that this round refines is not the linear one that it says")
        return head

    @property
    def noisy(self) -> bool:
        """Always."""
        return True

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Gradients of integer rows."""
        del normalise
        self._expect(gradient_layout(self.dim + self.bias, self.classes))
        own = self._integers(lattice)
        assert own is not None  # or the layout would not be for it
        return GradientSums(self.layout, own, self._head(), clip=self._real("clip"))

    def gathered(self, gathering: Any, summed: Summed) -> Refined:
        """The sum."""
        gradient = summed.lattice.decode(self.layout.unflatten(total_of(gathering))["G"], 2)
        rows = self.dim + self.bias
        inverse = self._array(_INVERSE, rows, rows)
        return Refined(
            gradient, self._number("records"), inverse, self._number("number"), self._number("rounds")
        )

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
