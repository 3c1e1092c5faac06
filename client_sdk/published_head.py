"""A head that the coordinator published, and what its users do with it."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from client_sdk.errors import Misuse
from client_sdk.records import order_by_name
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.reliability import Reliability
from veilsum.calibration.rows import Array, Floats, Integers
from veilsum.protocol.record import CombinedRecord, ResultRecord
from veilsum.study.result_files import calibrated_in

LOG_ODDS_CRITERIA = frozenset({"gradient", "virtual features"})
"""Heads of the logistic loss, by `solution.chosen_by`: their scores are log-odds at a temperature of 1."""


class Judgement(BaseModel):
    """Accuracy of heads on this member's hold-out records of the classes that the consortium's head predicts.

    Attributes:
        records: number of these hold-out rows.
        unanswered: hold-out rows of other classes, withheld ones included. No figure counts them: whoever holds such a class alone would see
            a head that is wrong where it can't be right.
        accuracy: share of them that the consortium's head labels correctly.
        own_accuracy: share that a head fitted to this member's contribution alone labels correctly; None without one.
        worse: whether the consortium's head is wrong more often, by more than two standard errors (McNemar 1947).
        temperature: τ at which softmax(scores/τ) of the consortium's head fits their labels best.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    records: int = Field(gt=0)
    unanswered: int = Field(default=0, ge=0)
    accuracy: float
    own_accuracy: float | None
    worse: bool
    temperature: float = Field(gt=0, allow_inf_nan=False)

    @classmethod
    def of_head(
        cls, head: Head, features: Array, labels: Integers, own: Head | None, *, unanswered: int = 0
    ) -> Self:
        """Judge the consortium's head, and a member's own that answers the same classes, on (n, dim) features and (n,) class indices, n ≥ 1."""
        seen = Reliability.of(head, features, labels, normalise=head.scales)
        own_accuracy, worse = None, False
        if own is not None:
            right, own_right = (
                each.predict(features, normalise=each.scales) == labels for each in (head, own)
            )
            behind, ahead = int((own_right & ~right).sum()), int((right & ~own_right).sum())
            own_accuracy, worse = float(own_right.mean()), behind - ahead > 2 * math.sqrt(behind + ahead)
        return cls(
            records=len(labels),
            unanswered=unanswered,
            accuracy=seen.accuracy,
            own_accuracy=own_accuracy,
            worse=worse,
            temperature=seen.temperature,
        )


class PublishedHead:
    """A head with the record that the coordinator signed for it: of one round (`Result`) or of several (`Combined`).

    Attributes:
        record: the signed record.
        head_file: the head's safetensors file, as received; None if the step has no head.
        judged: the head's accuracy on this member's hold-out records; None before `Result.judge`.
    """

    record: ResultRecord | CombinedRecord
    head_file: bytes | None
    judged: Judgement | None = None

    @property
    def head(self) -> Head | None:
        """The head; None after a step without one."""
        return None if self.head_file is None else self.calibrated.head

    @cached_property
    def calibrated(self) -> Calibrated:
        """The head with its temperature: the one that `judged` holds, or else 1 for logistic heads. It never predicts a class without rows.

        Raises:
            Misuse: the step has no head.
            PeerFault: result-mismatch if the file holds no head.
        """
        if self.head_file is None:
            raise Misuse("the step has no head: see `arrays` of its documents")
        found = calibrated_in(self.head_file).without(self.unanswered)
        if self.judged is not None:
            return replace(found, temperature=self.judged.temperature)
        log_odds = self.record.solution.chosen_by in LOG_ODDS_CRITERIA
        return replace(found, temperature=1.0) if log_odds else found

    @property
    def weights(self) -> Floats:
        """(dim, C) float64. For a linear head, scores = z @ weights + bias for features z of length 1."""
        return self.calibrated.head.weights

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self.calibrated.head.bias

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Classes without rows in the sum, withheld ones included: the head never predicts them."""
        return tuple(sorted({*self.record.withheld, *self.record.solution.empty_classes}))

    @property
    def columns(self) -> tuple[str, ...]:
        """The features' names, if the study names them and this head knows the study. Data frames are then taken by name."""
        return ()

    def scores(self, features: npt.ArrayLike) -> Floats:
        """Return (n, C) scores of (n, dim) features of any length; −∞ for classes that the head never predicts.

        Raises:
            CalibrationError: features of another shape or type, or without direction.
            Misuse: a data frame with other columns than `columns`.
        """
        return self.calibrated.scores(order_by_name(features, self.columns))

    def probabilities(self, features: npt.ArrayLike, *, temperature: float | None = None) -> Floats:
        """Return (n, C) probabilities softmax(scores/τ).

        A ridge head without a temperature is not calibrated: its scores are not log-odds, and a UserWarning says so.

        Args:
            features: as for `scores`.
            temperature: τ; None for the one that `judged` holds, or else 1.

        Raises:
            CalibrationError, Misuse: as `scores`.
        """
        features = order_by_name(features, self.columns)
        tau, head = self.calibrated.choose_temperature(temperature), self.calibrated.head
        return head.probabilities(features, temperature=tau, normalise=head.scales)

    def predict(self, features: npt.ArrayLike) -> Integers:
        """Return (n,) class indices; never a class without rows. Raises as `scores`."""
        return self.calibrated.predict(order_by_name(features, self.columns))
