"""A head as a linear layer, from a result, a solution, or a file."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from client_sdk.combined import Combined
from client_sdk.result import Result
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.study.result_files import calibrated_in

Published = Result | Combined
Source = Published | Calibrated | Head | str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Scores z @ weights + bias of features z scaled to length 1.

    Attributes:
        weights: (dim, C) float64.
        bias: (C,) float64; zeros where the head has none.
        unanswered: classes that the head never answers: withheld, or without rows in the sum.
        temperature: τ of softmax(scores/τ), above 0, from a hold-out set; None without one.
    """

    weights: Floats
    bias: Floats
    unanswered: tuple[int, ...]
    temperature: float | None = None

    def over(self, temperature: float) -> tuple[Floats, Floats]:
        """Weights (dim, C) and bias (C,) of the scores over a temperature; −∞ is the bias of classes that are never answered."""
        weights, bias = self.weights / temperature, self.bias / temperature
        silent = list(self.unanswered)
        weights[:, silent], bias[silent] = 0, -np.inf
        return weights, bias

    @classmethod
    def of(cls, source: Source) -> "LinearHead":
        """Read the head of a result, a solution, or a safetensors file that a command wrote.

        A class with a column of zeros is never answered.

        Raises:
            Misuse: the file holds no head, or the head maps features by more than their length.
        """
        match source:
            case Calibrated():
                return cls._of(source)
            case Head():
                return cls._of(Calibrated(source))
            case Result() | Combined():
                record = source.record
                return cls._of(source.calibrated.without((*record.solution.empty_classes, *record.withheld)))
        path = Path(source)
        try:
            calibrated = calibrated_in(path.read_bytes())
        except (OSError, PeerFault) as error:
            raise Misuse(f"{path} holds no head: {error}") from error
        weights, bias = calibrated.head.weights, calibrated.head.bias
        silent = ~weights.any(axis=0) & (True if bias is None else bias == 0)
        return cls._of(calibrated.without(tuple(np.flatnonzero(silent).tolist())))

    @classmethod
    def _of(cls, calibrated: Calibrated) -> "LinearHead":
        head = calibrated.head
        if type(head).rows is not Head.rows or head.centre is not None:
            raise Misuse(
                "this head maps features before its weights: it is not a linear layer; use its own scores"
            )
        bias = np.zeros(head.classes) if head.bias is None else head.bias
        return cls(head.weights, bias, head.empty_classes, calibrated.temperature)
