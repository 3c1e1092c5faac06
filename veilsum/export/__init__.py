"""Heads in other libraries: functions on a head. Each needs only the library that it is named after, and imports it when it is called.

A head comes from a `Result`, a `Combined`, a solution of `veilsum.calibration`, or the path of a file that `veilsum calibrate`,
`veilsum member join` or `veilsum operator round combined` wrote. scikit-learn takes every kind; PyTorch and ONNX take linear ones,
also with a centre, but not random features or CCVR's power.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from veilsum.export.linear import HeadSource, linear_head
from veilsum.protocol.errors import Misuse

if TYPE_CHECKING:
    from veilsum.export.sklearn import HeadClassifier
    from veilsum.export.torch import CalibratedHead


def to_torch(head: HeadSource) -> "CalibratedHead":
    """Return a head as a PyTorch layer; `veilsum.export.torch.replace_head` puts it into a model.

    Raises:
        Misuse: the head is not linear, or PyTorch is not installed.
    """
    with _import_library("torch", "torch"):
        from veilsum.export.torch import CalibratedHead  # noqa: PLC0415 - an extra
    return CalibratedHead(linear_head(head))


def to_sklearn(head: HeadSource, classes: Any = None) -> "HeadClassifier":
    """Return a head of any kind as a fitted scikit-learn classifier.

    Args:
        head: with its temperature, such as `Result.judge` finds it.
        classes: labels in the study's order; None for class indices.

    Raises:
        Misuse: the labels are not one for each class in the study's order, or scikit-learn is not installed.
    """
    with _import_library("sklearn", "scikit-learn"):
        from veilsum.export.sklearn import HeadClassifier  # noqa: PLC0415 - an extra
    return HeadClassifier.of(head, classes)


def to_onnx(head: HeadSource, path: str | os.PathLike[str]) -> None:
    """Write a head as an ONNX model for features (n, dim) float32 of any length.

    Its outputs are `label` (n,) int64 class indices, `logits` (n, C) and, if the head has a temperature, `probabilities` (n, C). A
    UserWarning says so if there are none. The metadata of a result's model name its study, period, round and classes, as JSON.

    Raises:
        Misuse: the head is not linear, or ONNX is not installed.
    """
    with _import_library("onnx", "veilsum[onnx]"):
        from veilsum.export.onnx import write_model  # noqa: PLC0415 - an extra
    write_model(head, path)


@contextmanager
def _import_library(name: str, requirement: str) -> Iterator[None]:
    """Raise Misuse if a library can't be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != name:
            raise
        raise Misuse(f"{name} is not installed: pip install '{requirement}'") from error
