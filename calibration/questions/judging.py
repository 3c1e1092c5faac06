"""The second round that finds out how far a head's probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.head_file import arrays_of, form_of
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.noisy_reliability import (
    NoisyJudging,
    NoisyReliability,
    noisy_layout,
    noisy_temperatures,
)
from calibration.privacy.sensitivity import Release, reliability_sensitivity
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
from calibration.questions.choosing import Judged
from calibration.questions.given import given, head_given
from calibration.reliability import ReliabilityStatistics, default_temperatures

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.layout import Scalar
    from calibration.privacy import NoiseTerms
    from calibration.rows import Floats


class Reliability(Question):
    """Losses, confidences and hits of an earlier round's head over records that it was not fitted on."""

    name: ClassVar[str] = "reliability"
    aimed = True
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
    rests_on_noisy: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {
        "bins": (int, 15),
        "temperature": (float, None),
    }

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The head is material; `bins` of confidence, 2 to 100; `temperature` is τ where it is known, and the grid where it is not."""
        assert earlier is not None
        head, bins = earlier.head, int(wish.parameters["bins"])
        if head is None or not 2 <= bins <= 100:
            raise CalibrationError(f"{bins} bins: take 2 to 100, and a round that ended in a head")
        if (head.dim, head.classes) != (wish.dim, wish.classes):
            raise CalibrationError(
                f"the head is of {head.dim} features and {head.classes} classes, not {wish.dim} and {wish.classes}"
            )
        form, arrays = given(head)
        known = wish.parameters.get("temperature")
        grid = _grid(None if known is None else float(known), noisy=wish.noisy)
        if wish.noisy:
            layout = noisy_layout(len(grid), bins, wish.classes)
        else:
            layout = ReliabilityStatistics(head, temperatures=grid, bins=bins).layout
        layout = layout.having(dim=wish.dim, classes=wish.classes, bins=bins, temperature=known, head=form)
        return Asked(layout, arrays)

    def _statistics(self) -> ReliabilityStatistics:
        grid = self._temperatures(noisy=False)
        statistics = ReliabilityStatistics(head_given(self), temperatures=grid, bins=self._number("bins"))
        self._expect(statistics.layout)
        return statistics

    def _temperatures(self, *, noisy: bool) -> Floats:
        known = None if self.layout.parameter("temperature") is None else self._real("temperature")
        return _grid(known, noisy=noisy)

    @property
    def directed(self) -> bool:
        """As the head that is judged."""
        return head_given(self).scales

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """Losses, bins and confusion, whichever features they are of."""
        del lattice
        T = len(self._temperatures(noisy=True))
        self._expect(noisy_layout(T, self._number("bins"), self.classes))
        return Release(reliability_sensitivity(T, noise.neighbours))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Judgements of the member's own records, in whole steps under noise."""
        if isinstance(lattice, FeaturesLattice):
            grid = self._temperatures(noisy=True)
            self._expect(noisy_layout(len(grid), self._number("bins"), self.classes))
            return NoisyJudging(self.layout, lattice, head_given(self), grid)
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
        """Judgements of all records, checked; of a noisy sum `NoisyReliability`."""
        if summed.mechanism is not None:
            blocks = self.layout.unflatten(total_of(gathering))
            parts = {name: summed.lattice.decode(block, 2) for name, block in blocks.items()}
            deviation = summed.mechanism.deviation("losses", summed.members)
            return NoisyReliability(self._temperatures(noisy=True), **parts, deviation=deviation)
        statistics = self._statistics()
        assert isinstance(summed.lattice, SumsLattice)
        statistics.add_sums(summed.lattice, total_of(gathering), members=summed.members)
        statistics.check()
        return statistics

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """The same head with a temperature, and the figures."""
        noisy = summed.mechanism is not None
        losses = statistics.mean_losses if noisy else statistics.losses
        index = int(np.argmin(losses))
        confidence, accuracy, records = statistics.diagram(index if noisy else statistics.temperature)
        arrays = {
            "temperatures": statistics.temperatures,
            "losses": np.asarray(losses),
            "calibration_errors": np.asarray(statistics.calibration_errors),
            "confidence": confidence,
            "accuracy": accuracy,
            "binned": records,
            "confusion": np.maximum(np.rint(statistics.confusion), 0).astype(np.int64),
        }
        notes = {
            "temperature": statistics.temperature,
            "calibration_error": float(statistics.calibration_errors[index]),
            "accuracy": statistics.accuracy,
        }
        return Answer(
            statistics.records,
            head_given(self),
            chosen_by="",
            temperature=statistics.temperature,
            documents={"reliability": Document(arrays, notes)},
        )


def _grid(known: float | None, *, noisy: bool) -> Floats:
    """The temperatures, or the one that is known; CalibrationError where that is none."""
    if known is None:
        return noisy_temperatures() if noisy else default_temperatures()
    if not 1e-3 <= known <= 1e3:
        raise CalibrationError(f"a temperature lies from 0.001 to 1000, not {known!r}")
    return np.array([known])
