"""Closed-form heads from feature files: the work behind `veilsum calibrate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from calibration import FFCStatistics, solve_ffc
from calibration.head_file import Calibrated
from protocol.errors import Misuse
from protocol.rest import HEAD
from veilsum.contribute import Errand, run
from veilsum.features import checked_features, of_file


def accuracy(head: Calibrated, path: Path, *, normalise: bool, without: Sequence[int] = ()) -> float:
    """Share of a file's records that the head calls what they are; those of some classes left out, NaN if these are all."""
    features, labels = checked_features(path, normalise=normalise, classes=head.head.classes)
    if features.shape[1] != head.head.dim:
        raise Misuse(f"{path}: features have shape {features.shape}, the head takes (n, {head.head.dim})")
    asked = ~np.isin(labels, list(without))
    hits = (head.predict(features) == labels)[asked]
    return float(hits.mean()) if hits.size else float("nan")


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
    _check_output(output, files, test)
    loaded = [checked_features(path, labels, normalise=normalise) for path in files]
    count = classes or 1 + max(int(y.max()) for _, y in loaded)
    statistics = FFCStatistics(
        loaded[0][0].shape[1], count, bias=bias, normalise=normalise, track_records=False
    )
    for path, (features, y) in zip(files, loaded, strict=True):
        with of_file(path):
            statistics.update(features, y)
    solution = solve_ffc(statistics, ridges or None)
    head = Calibrated(solution)
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
        values["accuracy"] = accuracy(head, test, normalise=normalise)
    _write(output, save(head.arrays, {HEAD: json.dumps(head.notes)}))
    return values


def through_round(errand: Errand, *, output: Path, test: Path | None) -> dict[str, Any]:
    """The same with other members: only the sum of everybody's statistics is ever seen."""
    _check_output(output, [errand.features], test)
    if test is not None:
        checked_features(test, normalise=errand.normalise)  # not only once the round is over
    result, values = run(errand, errand.folder / "result")
    head, rare = result.calibrated, result.record.withheld
    assert result.weights_file is not None
    _write(output, result.weights_file)
    values["head"] = str(output)
    values["never_answers"] = list(result.unanswered)
    if test is not None:
        values["accuracy"] = accuracy(head, test, normalise=errand.normalise)
        if rare:
            values["accuracy_without_withheld"] = accuracy(
                head, test, normalise=errand.normalise, without=rare
            )
    return values


def _check_output(output: Path, files: Sequence[Path], test: Path | None) -> None:
    """Before the work: what would be lost by it, or lose it."""
    inputs = [*files] if test is None else [*files, test]
    if output.resolve() in {path.resolve() for path in inputs}:
        raise Misuse(f"--output {output} would replace the features: choose another file")
    if output.is_dir():
        raise Misuse(f"--output {output} is a folder: name a file in it")


def _write(output: Path, content: bytes) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(content)
