"""The second round that finds out how far a head's probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.head_file import arrays_of, form_of
from calibration.lattice import SumsLattice
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
from calibration.questions.given import given, head_given
from calibration.questions.variants import Judged
from calibration.reliability import ReliabilityStatistics

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.layout import Scalar


class Reliability(Question):
    """Losses, confidences and hits of an earlier round's head over records that it was not fitted on."""

    name: ClassVar[str] = "reliability"
    title: ClassVar[str] = (
        "temperature and calibration error of an earlier round's head, on records kept back"
    )
    learns: ClassVar[str] = (
        "for each temperature the losses, for each bin of confidence the hits, and the confusion of the classes, over all members together"
    )
    rests_on: ClassVar[tuple[str, ...]] = (
        "ffc",
        "ffc-bias",
        "balanced",
        "folds",
        "loo",
        "rff",
        "ccvr",
        "refine",
    )
    rests_on_centred: ClassVar[bool] = True
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {"bins": (int, 15)}

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The head is material; `bins` of confidence, 2 to 100."""
        assert earlier is not None
        head, bins = earlier.head, int(wish.parameters["bins"])
        if head is None or not 2 <= bins <= 100:
            raise CalibrationError(f"{bins} bins: take 2 to 100, and a round that ended in a head")
        if (head.dim, head.classes) != (wish.dim, wish.classes):
            raise CalibrationError(
                f"the head is of {head.dim} features and {head.classes} classes, not {wish.dim} and {wish.classes}"
            )
        form, arrays = given(head)
        layout = ReliabilityStatistics(head, bins=bins).layout.having(
            dim=wish.dim, classes=wish.classes, bins=bins, head=form
        )
        return Asked(layout, arrays)

    def _statistics(self) -> ReliabilityStatistics:
        statistics = ReliabilityStatistics(head_given(self), bins=self._number("bins"))
        self._expect(statistics.layout)
        return statistics

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Judgements of the member's own records."""
        del lattice
        statistics = self._statistics()
        return Judged(statistics, normalise=normalise and statistics.head.scales)

    def check_head(self, head: Head) -> None:
        """The head that was judged."""
        judged = head_given(self)
        seen, expected = arrays_of(head), arrays_of(judged)
        same = seen.keys() == expected.keys() and all(np.array_equal(seen[n], expected[n]) for n in seen)
        if not same or form_of(head) != form_of(judged):
            raise LayoutMismatch("the head is not the one that this round judged")

    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """Judgements of all records, checked."""
        statistics = self._statistics()
        assert isinstance(summed.lattice, SumsLattice)
        statistics.add_sums(summed.lattice, total_of(gathering), members=summed.members)
        statistics.check()
        return statistics

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The same head with a temperature, and the figures."""
        del summed
        confidence, accuracy, records = statistics.diagram(statistics.temperature)
        index = int(np.argmin(statistics.losses))
        arrays = {
            "temperatures": statistics.temperatures,
            "losses": np.asarray(statistics.losses),
            "calibration_errors": np.asarray(statistics.calibration_errors),
            "confidence": confidence,
            "accuracy": accuracy,
            "binned": records,
            "confusion": statistics.confusion,
        }
        notes = {
            "temperature": statistics.temperature,
            "calibration_error": float(statistics.calibration_errors[index]),
            "accuracy": statistics.accuracy,
        }
        return Answer(
            statistics.records,
            statistics.head,
            chosen_by="",
            temperature=statistics.temperature,
            documents={"reliability": Document(arrays, notes)},
        )
