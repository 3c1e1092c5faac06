"""A head that the coordinator published, and what its users do with it."""

from dataclasses import replace
from functools import cached_property

import numpy.typing as npt

from client_sdk.comparison import Judgement
from client_sdk.errors import Misuse
from client_sdk.records import order_by_name
from veilsum.calibration.answer import LOG_ODDS_CRITERIA
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats, Integers
from veilsum.protocol.record import CombinedRecord, ResultRecord
from veilsum.study.result_files import calibrated_in


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
            raise Misuse("the step has no head: see `read_arrays` for its documents")
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
