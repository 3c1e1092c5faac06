"""What a tool needs of a head, wherever the head comes from: a result, a solution, or a file."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from calibration.head import Head
from calibration.head_file import Calibrated
from client_sdk.combined import Combined
from client_sdk.errors import PeerFault
from client_sdk.result import Result, calibrated_in
from protocol.errors import Misuse

Floats = npt.NDArray[np.float64]


Published = Result | Combined
Source = Published | Calibrated | Head | str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Scores z @ weights + bias of features z scaled to length 1.

    Attributes:
        weights: (dim, C) float64.
        bias: (C,) float64; zeros where the head has none.
        unanswered: classes whose column is no answer, because nothing in the sum speaks for them.
        temperature: τ of softmax(scores/τ), above 0, as records held out found it; None where none were.
    """

    weights: Floats
    bias: Floats
    unanswered: tuple[int, ...]
    temperature: float | None = None

    @classmethod
    def of(cls, source: Source) -> "LinearHead":
        """The head of a result, of a solution, or of a safetensors file as commands write it.

        Classes that a file does not name are empty where their column is zeros, which only such classes have.

        Raises:
            Misuse: a file that is no head; a head whose features are mapped by more than their length.
        """
        match source:
            case Calibrated():
                return cls._of(source)
            case Head():
                return cls._of(Calibrated(source))
            case Result() | Combined():
                withheld = getattr(source.record, "withheld", ())
                return cls._of(source.calibrated.without((*source.record.solution.empty_classes, *withheld)))
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
        if type(head).rows is not Head.rows:
            raise Misuse(
                f"a {type(head).__name__} maps features before its weights: a linear layer cannot be it; "
                "use its own scores"
            )
        bias = np.zeros(head.classes) if head.bias is None else head.bias
        return cls(head.weights, bias, head.empty_classes, calibrated.temperature)
