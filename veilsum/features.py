"""Features and labels from files: .npz, .npy, .safetensors, .parquet. No torch needed."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.errors import Misuse

Features = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]
_FORMS = ".npz, .npy, .safetensors or .parquet"


def read_features(path: Path, labels: Path | None = None) -> tuple[Features, Labels]:
    """Features (n, dim) and labels (n,).

    `.npz` and `.safetensors` hold arrays named `features` and `labels`. `.npy` holds the features and takes
    the labels from a second `.npy`. `.parquet` has a column `label`; every other column is a feature.

    Raises:
        Misuse: a form that isn't read, a missing file, array or column, or an array that needs unpickling.
    """
    if not path.exists():
        raise Misuse(f"{path} does not exist")
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise Misuse(f"{path} is not {_FORMS}")
    arrays = reader(path)
    if labels is not None:
        arrays["labels"] = _npy(labels)["features"]
    missing = {"features", "labels"} - set(arrays)
    if missing:
        raise Misuse(
            f"{path} has no {' and no '.join(sorted(missing))}: "
            + (
                "pass --labels FILE.npy"
                if missing == {"labels"}
                else f"it holds {', '.join(sorted(arrays)) or 'nothing'}"
            )
        )
    return arrays["features"], arrays["labels"]


def _npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError) as error:
        raise Misuse(f"{path} is not a readable .npz of plain arrays: {error}") from error


def _npy(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        return {"features": np.load(path, allow_pickle=False)}
    except (ValueError, OSError) as error:
        raise Misuse(f"{path} is not a readable .npy of plain numbers: {error}") from error


def _safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError  # noqa: PLC0415 - only this form needs it
    from safetensors.numpy import load_file  # noqa: PLC0415 - as above

    try:
        tensors: dict[str, npt.NDArray[Any]] = load_file(path)
    except SafetensorError as error:
        raise Misuse(f"{path} is not a readable .safetensors: {error}") from error
    return tensors


def _parquet(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - only this form needs it
    except ImportError as error:
        raise Misuse("reading .parquet needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise Misuse(f"{path} is not a readable .parquet: {error}") from error
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    labels = columns.pop("label", None)
    arrays = {"features": np.column_stack(list(columns.values()))} if columns else {}
    return arrays if labels is None else {**arrays, "labels": labels}
