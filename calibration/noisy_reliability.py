"""Reliability under noise: whole numbers of which a record moves few, and what follows from their noisy sum.

A record adds to each temperature its loss, cut to `LOSS_MAX` nats and divided by them, and to one bin its confidence, maybe a hit, and
itself; and itself to the confusion. So Δ = √(4T + 1) at T temperatures (`reliability_sensitivity`): one round of a grid finds τ, another
at that τ alone the calibration error, at a fourth of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.head import check_weights, log_softmax
from calibration.layout import DenseBlock, Layout
from calibration.moments import IntegerSums

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.lattice import FeaturesLattice
    from calibration.rows import Floats, Integers

LOSS_MAX = 8.0
"""In nats; of exact sums four times as much, but noise grows with it."""
_SCORE_MAX = 1e12
_SMOOTHING = np.array([-3.0, 12.0, 17.0, 12.0, -3.0]) / 35
"""A parabola through five neighbours (Savitzky, Golay 1964): a loss changes slowly from τ to τ, its noise does not."""


def noisy_temperatures() -> Floats:
    """17 temperatures from 0.01 to 100, four a decade."""
    return np.logspace(-2, 2, 17)


def noisy_layout(temperatures: int, bins: int, classes: int) -> Layout:
    """Losses (T,), confidences, hits and binned (T, B) and confusion (C, C)."""
    binned = (DenseBlock(name, (temperatures, bins)) for name in ("confidences", "hits", "binned"))
    return Layout(
        (DenseBlock("losses", (temperatures,)), *binned, DenseBlock("confusion", (classes, classes)))
    )


class NoisyJudging(IntegerSums):
    """A member's part.

    Args:
        layout: `noisy_layout`, maybe with parameters.
        lattice: of the round.
        head: that is judged.
        temperatures: (T,).

    Raises:
        CalibrationError: as `check_weights`.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, head: Head, temperatures: Floats) -> None:
        super().__init__(layout, lattice, head.classes, head.dim)
        check_weights(head)
        self._head, self._temperatures = head, temperatures
        self._bins = layout.blocks[1].shape[1]

    def _add(self, rows: Floats, labels: Integers) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # of features of any length: cut below
            scores = self._head.scores(rows, normalise=self._head.scales, total=True)
        scores = np.nan_to_num(scores, nan=0.0).clip(-_SCORE_MAX, _SCORE_MAX)
        scores[:, list(self._head.empty_classes)] = -np.inf
        own, predicted = np.arange(len(labels)), scores.argmax(axis=1)
        one = self.lattice.unit(2)
        named = {block.name: self.part(block.name).reshape(block.shape) for block in self.layout.blocks}
        for index, temperature in enumerate(self._temperatures):
            logs = log_softmax(scores / temperature)
            named["losses"][index] += self.whole(-logs[own, labels] / LOSS_MAX).sum()
            confidences = self.whole(np.exp(logs[own, predicted]))
            bins = np.minimum(confidences * self._bins // one, self._bins - 1)
            np.add.at(named["confidences"][index], bins, confidences)
            np.add.at(named["hits"][index], bins[predicted == labels], one)
            np.add.at(named["binned"][index], bins, one)
        np.add.at(named["confusion"], (labels, predicted), one)


@dataclass(frozen=True, eq=False)
class NoisyReliability:
    """What a noisy round pools, in records.

    Attributes:
        temperatures: (T,).
        losses: (T,) in units of `LOSS_MAX`.
        confidences: (T, B).
        hits: (T, B).
        binned: (T, B).
        confusion: (C, C).
        deviation: of the noise on each.
    """

    temperatures: Floats
    losses: Floats
    confidences: Floats
    hits: Floats
    binned: Floats
    confusion: Floats
    deviation: float

    @property
    def records(self) -> int:
        """N, at least 1: the bins' and the confusion's, each by how little noise it has."""
        T, bins = self.binned.shape
        variances = np.array([bins / T, self.confusion.size])
        seen = np.array([self.binned.sum() / T, self.confusion.sum()])
        return max(1, round(float((seen / variances).sum() / (1 / variances).sum())))

    @property
    def mean_losses(self) -> Floats:
        """(T,) nats a record, smoothed over five neighbours."""
        losses = self.losses
        if len(losses) >= len(_SMOOTHING):
            losses = np.convolve(np.pad(losses, 2, "edge"), _SMOOTHING, "valid")
        mean: Floats = losses * LOSS_MAX / self.records
        return mean

    @property
    def temperature(self) -> float:
        """The τ of the smallest loss."""
        return float(self.temperatures[int(self.mean_losses.argmin())])

    @property
    def calibration_errors(self) -> Floats:
        """(T,) Σ_b |hits − confidences|/N, the noise's own 2σ² taken off each square."""
        squares = (self.hits - self.confidences) ** 2 - 2 * self.deviation**2
        errors: Floats = np.sqrt(np.maximum(squares, 0)).sum(axis=1) / self.records
        return errors

    def diagram(self, index: int) -> tuple[Floats, Floats, Integers]:
        """Mean confidence, accuracy and records of each bin, (B,) each, from 0 to 1 and from 0 on, at one τ."""
        held = np.maximum(self.binned[index], 1)
        shares = ((part[index] / held).clip(0, 1) for part in (self.confidences, self.hits))
        confidence, accuracy = shares
        return confidence, accuracy, np.maximum(np.rint(self.binned[index]), 0).astype(np.int64)

    @property
    def accuracy(self) -> float:
        """Share of records that were called what they are, from 0 to 1."""
        return float(np.clip(np.trace(self.confusion) / self.records, 0, 1))
