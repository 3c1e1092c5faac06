"""Reliability: how often a head is right when it says how sure it is, on a hold-out set of this machine.

For every temperature τ of a grid: the mean loss −log softmax(s/τ)_y and, in bins of the confidence max softmax, the confidences and the hits
(Guo et al. 2017, sections 2 and 4.2). τ and the expected calibration error follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from veilsum.calibration.head import Head, log_softmax
from veilsum.calibration.rows import Array, Floats, Integers, as_labels, row_blocks

LOSS_MAX = 32.0
"""The most nats that a record's loss counts: a class that the head calls e^−32 likely costs as much as one that it never predicts."""
_LOSS_TIE = 1e-6
"""Losses this close, in nats, count as equal: a hold-out set without an error would make the head surer and surer."""
CONFIDENCE_BINS = 15
"""B, equal parts of the confidences from 0 to 1."""


def default_temperatures() -> Floats:
    """49 temperatures from 1e-4 to 100, eight per decade: ridge scores need small ones, the smaller the more classes, logits about 1."""
    return np.logspace(-4, 2, 49)


@dataclass(frozen=True, repr=False, eq=False)
class Reliability:
    """A head's losses, confidences and hits over N records that it was not fitted on.

    Attributes:
        records: N.
        temperatures: (T,) τ compared.
        losses: (T,) mean negative log likelihood in nats; 0 without records.
        confidences: (T, B) sums of the confidences in each bin.
        hits: (T, B) records of each bin that were predicted correctly.
    """

    records: int
    temperatures: Floats
    losses: Floats
    confidences: Floats
    hits: Integers

    @classmethod
    def of(
        cls,
        head: Head,
        features: Array,
        labels: Array,
        *,
        normalise: bool = False,
        temperatures: Sequence[float] | None = None,
    ) -> Self:
        """Judge a head.

        Args:
            head: any kind.
            features: (n, dim) as `Head.rows`.
            labels: (n,) integers.
            normalise: accept rows of any length.
            temperatures: τ, each above 0; None for `default_temperatures`.

        Raises:
            CalibrationError: as `Head.rows`.
        """
        scores = head.answer_scores(features, normalise=normalise)
        indices = as_labels(labels, len(scores), scores.shape[1])
        grid = default_temperatures() if temperatures is None else np.asarray(temperatures, np.float64)
        shape = (len(grid), CONFIDENCE_BINS)
        found = cls(len(scores), grid, np.zeros(len(grid)), np.zeros(shape), np.zeros(shape, np.int64))
        for block in row_blocks(*scores.shape):
            found._add_scores(scores[block], indices[block])
        return found

    def __repr__(self) -> str:
        return f"<Reliability, {self.records} records>"

    def _add_scores(self, scores: Floats, labels: Integers) -> None:
        own, predicted = np.arange(len(labels)), scores.argmax(axis=1)
        hits = predicted == labels
        for index, temperature in enumerate(self.temperatures):
            logs = log_softmax(scores / temperature)
            confidences = np.exp(logs[own, predicted])
            bin_of = np.minimum((confidences * CONFIDENCE_BINS).astype(np.int64), CONFIDENCE_BINS - 1)
            self.losses[index] += np.minimum(-logs[own, labels], LOSS_MAX).sum() / max(self.records, 1)
            self.confidences[index] += np.bincount(bin_of, confidences, CONFIDENCE_BINS)
            self.hits[index] += np.bincount(bin_of[hits], minlength=CONFIDENCE_BINS)

    @property
    def best(self) -> int:
        """Index of the temperature with the smallest loss, the largest of those that tie."""
        return int(np.flatnonzero(self.losses <= self.losses.min() + _LOSS_TIE)[-1])

    @property
    def temperature(self) -> float:
        """The τ with the smallest loss, for `Head.probabilities`."""
        return float(self.temperatures[self.best])

    @property
    def calibration_errors(self) -> Floats:
        """(T,) expected calibration error, Σ_b |hits_b − confidences_b|/N (Guo et al. 2017, eq. 3)."""
        apart: Floats = np.abs(self.hits - self.confidences).sum(axis=1) / max(self.records, 1)
        return apart

    @property
    def accuracy(self) -> float:
        """Share of records that were predicted correctly."""
        return float(self.hits[0].sum() / max(self.records, 1))
