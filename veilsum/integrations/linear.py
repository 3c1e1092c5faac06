"""What a tool needs of a head, wherever the head comes from: a result, a solution, or a file."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from calibration.head import Head
from client_sdk.client_result import ClientResult
from client_sdk.combined import Combined
from client_sdk.result import Result, notes_of
from protocol.errors import Misuse

Floats = npt.NDArray[np.float64]


Published = Result | ClientResult | Combined
Source = Published | Head | str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Scores z @ weights + bias of features z scaled to length 1.

    Attributes:
        weights: (dim, C) float64.
        bias: (C,) float64; zeros where the head has none.
        unanswered: classes whose column is no answer, because nothing in the sum speaks for them.
    """

    weights: Floats
    bias: Floats
    unanswered: tuple[int, ...]

    @classmethod
    def of(cls, source: Source) -> "LinearHead":
        """The head of a result, of a solution, or of a safetensors file as commands write it.

        A file names its empty classes by columns of zeros, which only such classes have.

        Raises:
            Misuse: a file that is no head; a head whose features are mapped by more than their length.
        """
        if isinstance(source, str | os.PathLike):
            return cls._read(Path(source))
        if isinstance(source, Head):
            if type(source).rows is not Head.rows:
                raise Misuse(
                    f"a {type(source).__name__} maps features before its weights: a linear layer cannot be it; "
                    "use its own scores"
                )
            return cls._of(source.weights, source.bias, source.empty_classes)
        head, withheld = cls.of(source.calibrated.head), getattr(source.record, "withheld", ())
        silent = sorted({*source.record.solution.empty_classes, *withheld})
        return cls(head.weights, head.bias, tuple(silent))

    @classmethod
    def _of(cls, weights: Floats, bias: Floats | None, unanswered: tuple[int, ...]) -> "LinearHead":
        return cls(weights, np.zeros(weights.shape[1]) if bias is None else bias, unanswered)

    @classmethod
    def _read(cls, path: Path) -> "LinearHead":
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise Misuse(f"{path} is no safetensors file: {error}") from error
        form = notes_of(path.read_bytes()).get("form", {"kind": "linear"})
        if form != {"kind": "linear"}:
            raise Misuse(
                f"{path} holds a head that maps features before its weights ({form}): a linear layer cannot be it"
            )
        weights, bias = tensors.get("weights"), tensors.get("bias")
        if weights is None or weights.ndim != 2 or (bias is not None and bias.shape != weights.shape[1:]):
            raise Misuse(
                f"{path} holds no head, weights (dim, C) and perhaps bias (C,): it holds {', '.join(tensors)}"
            )
        silent = ~weights.any(axis=0) & (True if bias is None else bias == 0)
        return cls._of(weights, bias, tuple(int(each) for each in np.flatnonzero(silent)))
