"""How often a head is right when it says how sure it is: a tiny second round over records held out.

For every temperature τ of a grid members sum the loss −log softmax(s/τ)_y and, in bins of the confidence max softmax, the
confidences and the hits (Guo et al. 2017, section 2 and 4.2). From these follow τ, the expected calibration error, a
reliability diagram for each τ and the confusion of the classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.digest import digest_of
from calibration.errors import CalibrationError, NoRecords, SumCheckFailed
from calibration.head import Head, log_softmax
from calibration.head_file import arrays_of, form_of
from calibration.layout import DenseBlock, Layout
from calibration.rows import Array, Floats, Integers, as_array, as_labels, row_blocks
from calibration.sums import RecordSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LOSS_MAX = 32.0
"""A record's loss counts for this many nats at most, so that no record adds more than 1 once divided by it. A class that
the head calls e^−32 likely, and one it never answers, cost the same."""


def default_temperatures() -> Floats:
    """33 temperatures from 0.01 to 100, eight a decade: ridge scores need small ones, logits about 1."""
    return np.logspace(-2, 2, 33)


class ReliabilityStatistics(RecordSums):
    """Sums of losses, confidences and hits: T(3B + 1) + C² + 1 numbers for T temperatures, B bins and C classes.

    Args:
        head: of the round before, the same for all members.
        temperatures: τ, each above 0; None for `default_temperatures`.
        bins: B, equal parts of the confidences from 0 to 1.
    """

    def __init__(
        self,
        head: Head,
        *,
        temperatures: Sequence[float] | NDArray[np.floating] | None = None,
        bins: int = 15,
    ) -> None:
        grid = (
            default_temperatures()
            if temperatures is None
            else np.unique(np.asarray(temperatures, np.float64))
        )
        if not grid.size or not (np.isfinite(grid) & (grid > 0)).all() or bins < 1:
            raise CalibrationError(
                f"temperatures are above 0 and finite, bins at least 1; got {temperatures!r}, {bins}"
            )
        T, C = len(grid), head.weights.shape[1]
        binned = (DenseBlock(name, (T, bins)) for name in ("confidences", "hits", "binned"))
        blocks = (DenseBlock("losses", (T,)), *binned, DenseBlock("confusion", (C, C)), DenseBlock("n", (1,)))
        super().__init__(Layout(blocks))
        self.head, self.temperatures, self.bins = head, grid, bins

    def terms(self) -> bytes:
        """A hash of the head, of whatever kind, and the grid."""
        kind = {"form": form_of(self.head), "empty": list(self.head.empty_classes)}
        return digest_of({"temperatures": self.temperatures, **arrays_of(self.head)}, kind)

    def update(self, features: Array, labels: Array, *, normalise: bool = False) -> None:
        """Add a batch of records that the head was not fitted on.

        Args:
            features: (n, dim) as `Head.rows`.
            labels: (n,) integers.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `Head.scores`; nothing is added then.
        """
        matrix = as_array(features)
        scores = self.head.scores(matrix, normalise=normalise)
        indices = as_labels(labels, len(scores), scores.shape[1])
        scores[:, list(self.head.empty_classes)] = -np.inf
        for block in row_blocks(len(scores), scores.shape[1]):
            self._add(scores[block], indices[block])

    def _add(self, scores: Floats, labels: Integers) -> None:
        own, predicted = np.arange(len(labels)), scores.argmax(axis=1)
        hits = predicted == labels
        for index, temperature in enumerate(self.temperatures):
            logs = log_softmax(scores / temperature)
            confidences = np.exp(logs[own, predicted])
            bin_of = np.minimum((confidences * self.bins).astype(np.int64), self.bins - 1)
            self._sums["losses"][index] += np.minimum(-logs[own, labels] / LOSS_MAX, 1).sum()
            for name, weights in (
                ("confidences", confidences),
                ("hits", hits),
                ("binned", np.ones(len(labels))),
            ):
                self._sums[name][index] += np.bincount(bin_of, weights, self.bins)
        np.add.at(self._sums["confusion"], (labels, predicted), 1)
        self._sums["n"] += len(labels)

    @property
    def losses(self) -> Floats:
        """(T,) mean negative log likelihood in nats, a record counted for `LOSS_MAX` at most."""
        return self.block("losses") * LOSS_MAX / max(self.records, 1)

    @property
    def temperature(self) -> float:
        """The τ of the smallest loss, for `Head.probabilities`.

        Raises:
            NoRecords: nothing was summed.
        """
        if not self.records:
            raise NoRecords("no record was judged; update or add sums first")
        return float(self.temperatures[int(self.losses.argmin())])

    @property
    def calibration_errors(self) -> Floats:
        """(T,) expected calibration error, Σ_b |hits_b − confidences_b|/N (Guo et al. 2017, eq. 3)."""
        apart: Floats = np.abs(self.block("hits") - self.block("confidences")).sum(axis=1) / max(
            self.records, 1
        )
        return apart

    def diagram(self, temperature: float) -> tuple[Floats, Floats, Integers]:
        """Mean confidence, accuracy and records of each bin, (B,) each, at the grid's nearest τ; 0 where a bin is empty.

        Raises:
            CalibrationError: a temperature that is not above 0.
        """
        if not 0 < temperature < np.inf:
            raise CalibrationError(f"a temperature is above 0 and finite, not {temperature!r}")
        index = int(np.abs(np.log(self.temperatures / temperature)).argmin())
        records = self.block("binned")[index]
        held = np.maximum(records, 1)
        return (
            self.block("confidences")[index] / held,
            self.block("hits")[index] / held,
            records.astype(np.int64),
        )

    @property
    def confusion(self) -> Integers:
        """(C, C) records of class (row) that were called class (column)."""
        return self.block("confusion").astype(np.int64)

    @property
    def accuracy(self) -> float:
        """Share of records that were called what they are."""
        return float(np.trace(self.block("confusion")) / max(self.records, 1))

    @property
    def recalls(self) -> Floats:
        """(C,) share of each class's records that were called that class; 0 without records."""
        confusion = self.block("confusion")
        recalls: Floats = np.diagonal(confusion) / np.maximum(confusion.sum(axis=1), 1)
        return recalls

    def check(self) -> None:
        """Check what all honest sums fulfil.

        Raises:
            SumCheckFailed: bins or confusion that hold other numbers of records than N, fractions of one, more hits than
                records, or hits that differ between temperatures, where the predicted class is the same.
        """
        binned, hits, confusion = self.block("binned"), self.block("hits"), self.block("confusion")
        whole = all((counts == np.rint(counts)).all() for counts in (binned, hits, confusion))
        if not whole or (hits < 0).any() or (hits > binned).any() or (confusion < 0).any():
            raise SumCheckFailed(
                "a bin has a fraction of a record, or more hits than records", identity="bins"
            )
        right = np.trace(confusion)
        if (binned.sum(axis=1) != self.records).any() or (hits.sum(axis=1) != right).any():
            raise SumCheckFailed(
                f"bins do not add up to {self.records} records, {right:g} of them right", identity="bins"
            )
        if confusion.sum() != self.records:
            raise SumCheckFailed(
                f"the confusion holds {confusion.sum():g} of {self.records} records", identity="confusion"
            )
