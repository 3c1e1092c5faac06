"""Reading result files of `veilsum train`, comparing runs, and the short form of results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from training.results import Diverged, Finite, Fraction, Part, RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_RESULT, _DIVERGED = (each.model_fields["format"].default for each in (RunResult, Diverged))


LONG_RUN = 200
"""Of a run with more rounds, a short form keeps only those that end in an evaluation."""

Matrix = tuple[tuple[Finite, ...], ...]


class Sweep(Part):
    """Accuracy over one hyper-parameter of a calibration, such as FFC's "ridge" or CCVR's virtual features "per_class"."""

    kind: str
    parameter: str
    values: tuple[float, ...]
    accuracies: tuple[Fraction, ...]


class Analyses(Part):
    """Numbers for reports about a run's models and heads.

    Attributes:
        cka: by layer, the similarity of the first ten members' outputs, (K, K).
        head_norms: ‖w_c‖ at each member, (K, C).
        consistency: SphereFed's direction and norm consistency over the members' heads.
        singular_values: of the global head, descending.
        separability: the mean sliced Wasserstein distance between classes' features, scaled to a mean square norm of one.
        embedding: t-SNE of test features, (n, 2), with `labels`.
        predicted: predicted classes of these records, (n,), by head: "none" is the trained one, the other the best calibration.
    """

    cka: dict[str, Matrix] = Field(default_factory=dict)
    head_norms: Matrix = ()
    consistency: dict[str, Finite] = Field(default_factory=dict)
    singular_values: tuple[float, ...] = ()
    separability: Finite = None
    embedding: Matrix = ()
    labels: tuple[int, ...] = ()
    predicted: dict[str, tuple[int, ...]] = Field(default_factory=dict)


class AnalysedResult(RunResult):
    """A run's result with what `research.analyse` adds, empty until then.

    Attributes:
        sweeps: accuracies over a calibration's hyper-parameter.
        analyses: see `Analyses`.
    """

    sweeps: tuple[Sweep, ...] = ()
    analyses: Analyses = Field(default_factory=Analyses)

    @property
    def rounds(self) -> int:
        """The number of rounds; a short form's history may lack some."""
        return self.history[-1].round if self.history else 0


class ResultError(ValueError):
    """A file that holds no veilsum result."""


def task(run: RunResult | Diverged) -> str:
    """Return experiment, scale, data, deal and recipe as text, which is equal for runs that differ only in the seed.

    Null settings equal absent ones, because files of earlier versions lack later settings. Counts and digests of dealt records
    depend on the seed and are left out.
    """
    recipe = {name: value for name, value in run.recipe.items() if name != "seed"}
    data = run.data.model_dump(exclude={"train_records", "test_records", "available"})
    deal = run.deal.model_dump(include={"kind", "options"})
    shared = [run.experiment, run.scale, data, run.data.records, deal, recipe]
    return json.dumps(_stated(shared), sort_keys=True)


def _stated(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _stated(each) for name, each in value.items() if each is not None}
    return [_stated(each) for each in value] if isinstance(value, list | tuple) else value


def shortened(result: AnalysedResult) -> AnalysedResult:
    """Round the history to six significant digits and milliseconds, more than any table or figure shows.

    Of a long run, rounds without an evaluation are left out.
    """
    lines = result.history
    if len(lines) > LONG_RUN:
        lines = tuple(line for line in lines if line.accuracy is not None)
    history = tuple(
        line.model_copy(
            update={
                "local_loss": _six_digits(line.local_loss),
                "test_loss": _six_digits(line.test_loss),
                "seconds": round(line.seconds, 3),
            }
        )
        for line in lines
    )
    return result.model_copy(update={"history": history})


def read_result(path: Path) -> AnalysedResult:
    """Read a result file. Raises ResultError if it holds something else."""
    try:
        return AnalysedResult.model_validate_json(path.read_text("utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ResultError(f"{path} holds no result: {_first(error)}") from error


def read_results(paths: Sequence[Path]) -> list[AnalysedResult]:
    """Read results from files and folders, sorted by experiment and seed; `read_diverged` reads runs that diverged.

    Other JSON files in a folder are ignored.

    Raises:
        ResultError: if a given file holds no result, or a folder neither a result nor a run that diverged.
        FileNotFoundError: if a path does not exist.
    """
    results = []
    for path in paths:
        if path.is_dir():
            formats = {file: _format(file) for file in sorted(path.rglob("*.json"))}
            if not {_RESULT, _DIVERGED} & set(formats.values()):
                raise ResultError(f"{path} holds no results; `veilsum train` writes them")
            results += [read_result(file) for file, format_ in formats.items() if format_ == _RESULT]
        elif _format(path) != _DIVERGED:
            results.append(read_result(path))
    return sorted(results, key=lambda result: (result.experiment, result.seed))


def read_run(path: Path) -> AnalysedResult | Diverged:
    """Read a result, or a run that diverged. Raises ResultError if the file holds something else."""
    if _format(path) != _DIVERGED:
        return read_result(path)
    try:
        return Diverged.model_validate_json(path.read_text("utf-8"))
    except ValidationError as error:
        raise ResultError(f"{path} holds no diverged run: {_first(error)}") from error


def read_diverged(paths: Sequence[Path]) -> list[Diverged]:
    """Read runs that diverged from files and folders, sorted by experiment and seed. Raises ResultError on damaged ones."""
    files = [file for path in paths for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    found = [
        run for file in files if _format(file) == _DIVERGED and isinstance(run := read_run(file), Diverged)
    ]
    return sorted(found, key=lambda run: (run.experiment, run.seed))


def _format(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content.get("format") if isinstance(content, Mapping) else None


def _six_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _first(error: ValidationError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is no text"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
