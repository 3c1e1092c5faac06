"""A head as a linear layer, wherever it comes from."""

import os
from pathlib import Path

import numpy as np

from client_sdk.published_head import PublishedHead
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.study.result_files import calibrated_in

HeadSource = PublishedHead | Calibrated | Head | str | os.PathLike[str]
"""What has a head: a `Result`, a `Combined`, a solution of `calibration`, or a file that a command wrote."""


def linear_head(source: HeadSource) -> Calibrated:
    """Return a source's head, which scores features z scaled to length 1 by z @ weights + bias.

    Raises:
        Misuse: there is no head, or it maps features by more than their length.
    """
    match source:
        case PublishedHead():
            found = source.calibrated
        case Calibrated():
            found = source
        case Head():
            found = Calibrated(source)
        case _:
            found = _read_head(Path(source))
    if type(found.head).rows is not Head.rows or found.head.centre is not None:
        raise Misuse(
            "this head maps features before its weights: it is not a linear layer; use its own scores"
        )
    return found


def layer_of(calibrated: Calibrated, temperature: float) -> tuple[Floats, Floats]:
    """Return the weights (dim, C) and bias (C,) of a linear head's scores over a temperature; classes that it never predicts have bias −∞."""
    head, silent = calibrated.head, list(calibrated.head.empty_classes)
    weights = head.weights / temperature
    bias = np.zeros(head.classes) if head.bias is None else head.bias / temperature
    weights[:, silent], bias[silent] = 0, -np.inf
    return weights, bias


def _read_head(path: Path) -> Calibrated:
    """Read a head's file, which may lack notes: a class whose column is zero is never predicted."""
    try:
        found = calibrated_in(path.read_bytes())
    except OSError as error:
        hint = ". Pass a result's folder to Result.load" if path.is_dir() else ""
        raise Misuse(f"can't read {path}: {error.strerror}{hint}") from error
    except PeerFault as error:
        raise Misuse(
            f"{path} holds no head: {error.detail}. Expected a file that `veilsum calibrate`, `veilsum member join` or "
            "`veilsum operator round combined` wrote"
        ) from error
    columns = [each for name, each in found.arrays.items() if name != "centre"]
    silent = ~np.vstack(columns).any(axis=0)
    return found.without(tuple(np.flatnonzero(silent).tolist()))
