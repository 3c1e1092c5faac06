"""A head, wherever it comes from, and its weights as a linear layer's."""

import os
from pathlib import Path

import numpy as np

from client_sdk.published_head import PublishedHead
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.study.result_files import calibrated_in

HeadSource = PublishedHead | Calibrated | Head | str | os.PathLike[str]
"""What has a head: a `Result`, a `Combined`, a solution of `calibration`, or a file that a command wrote."""


def find_head(source: HeadSource) -> Calibrated:
    """Return the head that a source has. Raises Misuse if it has none."""
    match source:
        case PublishedHead():
            return source.calibrated
        case Calibrated():
            return source
        case Head():
            return Calibrated(source)
        case _:
            return _read_head(Path(source))


def linear_head(source: HeadSource) -> Calibrated:
    """Return a source's head, which scores x @ weights + bias: x is z of length 1, and with a centre m (z − m)/‖z − m‖.

    Raises:
        Misuse: there is no head, or it maps features in another way.
    """
    found = find_head(source)
    match found.head:
        case TukeyHead(power=None, unit=True):  # of CCVR after a noisy mean
            return found
        case head if type(head).rows is Head.rows:
            return found
    raise Misuse(
        "this head has random features, applies CCVR's power or uses the length of features: it is not a linear layer. Pass it to "
        "veilsum.export.to_sklearn, or call its own scores"
    )


def layer_of(calibrated: Calibrated, temperature: float) -> tuple[Floats, Floats]:
    """Return the weights and the bias (C,) of a head's scores over a temperature; classes that it never predicts have bias −∞."""
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
