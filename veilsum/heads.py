"""Closed-form heads from feature files: the work behind `veilsum calibrate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from calibration import FFCStatistics, solve_ffc
from protocol.errors import Misuse
from veilsum.contribute import Errand, run
from veilsum.features import Features, read_features

Floats = npt.NDArray[np.float64]


def local(
    files: Sequence[Path],
    *,
    labels: Path | None,
    classes: int | None,
    bias: bool,
    normalise: bool,
    ridges: Sequence[float] | None,
    output: Path,
    test: Path | None,
) -> dict[str, Any]:
    """FFC on the files' pooled records; writes the weights and says how they were found."""
    if labels is not None and len(files) != 1:
        raise Misuse("--labels goes with one file of features")
    loaded = [read_features(path, labels) for path in files]
    count = classes or 1 + max(int(y.max(initial=0)) for _, y in loaded)
    if loaded[0][0].ndim != 2:
        raise Misuse(f"{files[0]}: features have shape (n, dim), not {loaded[0][0].shape}")
    statistics = FFCStatistics(loaded[0][0].shape[1], count, bias=bias, normalise=normalise)
    for features, y in loaded:
        statistics.update(features, y)
    solution = solve_ffc(statistics, ridges or None)
    tensors = {"weights": np.ascontiguousarray(solution.weights)}
    if solution.bias is not None:
        tensors["bias"] = np.ascontiguousarray(solution.bias)
    save_file(tensors, output)
    values: dict[str, Any] = {
        "records": solution.records,
        "classes": count,
        "empty_classes": list(solution.empty_classes),
        "ridge": solution.ridge,
        "chosen_by": "GCV" if len(solution.grid) > 1 else "you",
        "effective_dof": solution.dof,
        "condition": solution.condition,
        "residual": solution.residual,
        "saved": str(output),
    }
    if test is not None:
        values["accuracy"] = accuracy(test, solution.weights, solution.bias, normalise=normalise)
    return values


def through_round(
    files: Sequence[Path],
    *,
    labels: Path | None,
    normalise: bool,
    folder: Path | None,
    cohort: str | None,
    admin_key: str | None,
    lineage: str,
    url: str,
    output: Path,
    test: Path | None,
) -> dict[str, Any]:
    """The same with other members: only the sum of everybody's statistics is ever seen."""
    if folder is None or cohort is None or admin_key is None:
        raise Misuse("a round takes --folder, --cohort and --admin-key together")
    if len(files) != 1:
        raise Misuse("a member contributes one file of features: join them first")
    errand = Errand(
        folder=folder,
        url=url,
        admin_key=admin_key,
        cohort=cohort,
        features=files[0],
        labels=labels,
        lineage=lineage,
        normalise=normalise,
    )
    from client_sdk import Result  # noqa: PLC0415 - a local head needs no SDK

    values = run(errand, folder / "result")
    result = Result.load(folder / "result")
    output.write_bytes(result.weights_file)
    values["head"] = str(output)
    if test is not None:
        values["accuracy"] = accuracy(test, result.weights, result.bias, normalise=normalise)
    return values


def accuracy(test: Path, weights: Floats, bias: Floats | None, *, normalise: bool) -> float:
    """Share of a file's records whose highest score is their label's."""
    features, y = read_features(test)
    z = _unit(features) if normalise else np.asarray(features, np.float64)
    if z.ndim != 2 or z.shape[1] != len(weights):
        raise Misuse(f"{test}: features have shape {z.shape}, the head takes (n, {len(weights)})")
    scores = z @ weights + (0.0 if bias is None else bias)
    return float((scores.argmax(axis=1) == y).mean())


def _unit(features: Features) -> Floats:
    z = np.asarray(features, np.float64)
    unit: Floats = z / np.linalg.norm(z, axis=1, keepdims=True)
    return unit
