"""What a run leaves behind: one small JSON file that names everything its numbers depend on.

A file holds one run under one seed. Runs that differ in nothing but the seed share `experiment`, and the report puts
their mean and spread beside the paper's row that `paper_row` names.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from training.data import Split
from training.partition import Partition
from training.resume import RoundRecord

Fraction = Annotated[float, Field(ge=0, le=1)]
# A class without test records has no accuracy: null in the file, NaN in arrays.
PerClass = tuple[Fraction | None, ...]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A loss that diverged, or the similarity of outputs that are constant: no number, null in the file.
Finite = Annotated[float | None, BeforeValidator(_finite)]
Matrix = tuple[tuple[Finite, ...], ...]


_RESULT: Final = "veilsum/result/1"
_DIVERGED: Final = "veilsum/diverged/1"


class ResultError(ValueError):
    """A file that holds no result of ours."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Part):
    """The records of a run.

    Attributes:
        name: as reports call it, such as "Fashion-MNIST".
        classes: C.
        train_records: distinct records that members trained on, whoever held them, and however many did.
        test_records: records held out.
        shape: (channels, height, width).
        stands_in_for: the data set of the paper's row where this is another one; None where it is the same.
        note: what else differs from the publisher's files, such as "JPEG, not bit-exact" or "10,000 of 60,000".
        available: records that there were to deal, of which shards may leave some out and members keep some back; None in
            files that state them as `train_records`.
    """

    name: str
    classes: int
    train_records: int
    test_records: int
    shape: tuple[int, int, int]
    stands_in_for: str | None = None
    note: str = ""
    available: int | None = None

    @property
    def records(self) -> int:
        """How many there were to deal, which does not depend on the seed."""
        return self.train_records if self.available is None else self.available

    @classmethod
    def of(
        cls, split: Split, partition: Partition, *, stands_in_for: str | None = None, note: str = ""
    ) -> Self:
        """The facts about a split, of which members train on what `partition` deals."""
        channels, height, width = split.train.x.shape[1:]
        return cls(
            name=split.train.name,
            classes=split.train.classes,
            train_records=len(np.unique(np.concatenate(partition.members))),
            test_records=len(split.test),
            shape=(channels, height, width),
            stands_in_for=stands_in_for,
            note=note,
            available=len(split.train),
        )


class Deal(_Part):
    """Who held what.

    Attributes:
        kind: how it was dealt, such as "dirichlet".
        options: the arguments of that deal, such as {"alpha": 0.1}.
        digest: `Partition.digest`.
        label_counts: records of each class at each member, (K, C).
        moved: records that a repair moved.
    """

    kind: str
    options: dict[str, float | int | str] = Field(default_factory=dict)
    digest: str
    label_counts: tuple[tuple[int, ...], ...]
    moved: int = 0

    @classmethod
    def of(cls, partition: Partition, kind: str, **options: float | str) -> Self:
        """The facts about a partition."""
        return cls(
            kind=kind,
            options=options,
            digest=partition.digest,
            label_counts=tuple(map(tuple, partition.label_counts.tolist())),
            moved=partition.moved,
        )


class Line(_Part):
    """One round: `training.RoundRecord` without the number of rounds."""

    round: int
    lr: float
    local_loss: Finite
    test_loss: Finite
    accuracy: Fraction
    seconds: float


class Calibration(_Part):
    """A head that was fitted after training.

    Attributes:
        kind: "ffc", "rff" (ridge on random features), "ccvr", "lda", "ncm" or "all-data"; the paper's rows use the same.
        accuracy: on the test records.
        per_class: accuracy on each class's own test records.
        way: through plain sums, or masked ones by the coordinator.
        max_difference: the largest entry of |W_masked − W_plain| where both were computed.
        upload_bytes: what a member sends for it.
        seconds: wall-clock time of the fit, statistics included.
        options: such as {"ridge": 0.1}.
    """

    kind: str
    accuracy: Fraction
    per_class: PerClass = ()
    way: Literal["plain", "masked"] = "plain"
    max_difference: float | None = None
    upload_bytes: int | None = None
    seconds: float | None = None
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


class Sweep(_Part):
    """Accuracy over one hyper-parameter of a calibration, such as FFC's "ridge" or CCVR's virtual features "per_class"."""

    kind: str
    parameter: str
    values: tuple[float, ...]
    accuracies: tuple[Fraction, ...]


class Analyses(_Part):
    """What `training.analysis` found; each is absent where nobody asked for it.

    Attributes:
        cka: by layer, the similarity of members' outputs, (K, K), of the first ten of them.
        head_norms: ‖w_c‖ at each member, (K, C).
        consistency: by layer or head, SphereFed's direction and norm consistency over the members.
        singular_values: of the global head, descending.
        separability: the mean sliced Wasserstein distance between classes' features, scaled to a mean square norm of one.
        embedding: t-SNE of test features, (n, 2), with `labels`.
        predicted: what heads take these records for, (n,): "none", the trained one, and the best calibration's kind.
    """

    cka: dict[str, Matrix] = Field(default_factory=dict)
    head_norms: Matrix = ()
    consistency: dict[str, Finite] = Field(default_factory=dict)
    singular_values: tuple[float, ...] = ()
    separability: Finite = None
    embedding: Matrix = ()
    labels: tuple[int, ...] = ()
    predicted: dict[str, tuple[int, ...]] = Field(default_factory=dict)


class Cost(_Part):
    """What the run took.

    Attributes:
        wall_s: seconds on the clock.
        cpu_s: processor seconds of all processes.
        upload_bytes: what a member sends in one round of training.
        parameters: trained parameters of the model.
    """

    wall_s: float
    cpu_s: float | None = None
    upload_bytes: int | None = None
    parameters: int | None = None


class Environment(_Part):
    """Where it ran: versions and hardware, and nothing that names the machine."""

    python: str
    torch: str
    numpy: str
    processor: str
    threads: int
    device: str = "cpu"

    @classmethod
    def here(cls, *, device: str = "cpu", threads: int = 1) -> Self:
        """This machine's."""
        return cls(
            python=platform.python_version(),
            torch=torch.__version__,
            numpy=np.__version__,
            processor=_processor(),
            threads=threads,
            device=device,
        )


class Result(_Part):
    """One run.

    Attributes:
        format: the layout of this file.
        experiment: what runs have in common that differ in the seed alone.
        method: how tables call it, such as "SphereFed × FedNova".
        paper_row: the row of the papers' tables that it is held against (`training.report.papers`).
        scale: in what it is smaller than the paper's run, in words; "" where it is not.
        seed: of everything.
        recipe: `Recipe.describe()`.
        data: the records.
        deal: who held what.
        history: a line a round.
        accuracy: of the classifier that training left, on the test records.
        per_class: the same by class.
        calibrations: heads fitted afterwards.
        personal: by method, each member's accuracy on its own held-out records.
        sweeps: accuracies over a calibration's hyper-parameter.
        analyses: what the pictures show.
        cost: time and traffic.
        environment: versions and hardware.
    """

    format: Literal["veilsum/result/1"] = _RESULT
    experiment: str
    method: str
    paper_row: str | None = None
    scale: str = ""
    seed: int
    recipe: dict[str, Any]
    data: Data
    deal: Deal
    history: tuple[Line, ...]
    accuracy: Fraction
    per_class: PerClass = ()
    calibrations: tuple[Calibration, ...] = ()
    personal: dict[str, tuple[Fraction, ...]] = Field(default_factory=dict)
    sweeps: tuple[Sweep, ...] = ()
    analyses: Analyses = Field(default_factory=Analyses)
    cost: Cost
    environment: Environment

    def after(self, kind: str) -> float | None:
        """The accuracy of one calibration, or of the trained head where `kind` is "none"; None where there is none."""
        if kind == "none":
            return self.accuracy
        return next((each.accuracy for each in self.calibrations if each.kind == kind), None)


class Diverged(_Part):
    """A run that left the finite numbers: it has no accuracy, and a report that left it out would flatter its method.

    Attributes:
        format: the layout of this file.
        experiment, method, scale, seed, recipe, data, deal, environment: as `Result`'s.
        round: in which, from 1.
        lr: the learning rate there.
    """

    format: Literal["veilsum/diverged/1"] = _DIVERGED
    experiment: str
    method: str
    scale: str = ""
    seed: int
    recipe: dict[str, Any]
    data: Data
    deal: Deal
    round: int
    lr: float
    environment: Environment


def task(run: Result | Diverged) -> str:
    """What runs share that differ in nothing but the seed, as text to compare: experiment, scale, data, deal and recipe.

    A setting that is null is as one that is absent: files of earlier versions lack settings that came later. Counts and digests
    of records that were dealt belong to the seed.
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


def lines(history: Iterable[RoundRecord]) -> tuple[Line, ...]:
    """A history as it goes into a result."""
    return tuple(Line(**{name: getattr(record, name) for name in Line.model_fields}) for record in history)


def per_class(accuracies: npt.NDArray[np.floating]) -> PerClass:
    """`evaluate.per_class_accuracy`'s array, (C,), as it goes into a result: NaN becomes null."""
    return tuple(None if np.isnan(value) else float(value) for value in accuracies)


def shortened(result: Result) -> Result:
    """The same result with a history of six significant digits and milliseconds: more than any table or figure shows.

    Nothing else is touched, so reports of both are alike to the last digit that they print.
    """
    history = tuple(
        line.model_copy(
            update={
                "local_loss": _six_digits(line.local_loss),
                "test_loss": _six_digits(line.test_loss),
                "seconds": round(line.seconds, 3),
            }
        )
        for line in result.history
    )
    return result.model_copy(update={"history": history})


def write_result(result: Result | Diverged, path: Path, *, indent: int | None = 1) -> None:
    """Write `result`, replacing what was there only when the whole file is on disk; on one line where `indent` is None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(result.model_dump_json(indent=indent) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_result(path: Path) -> Result:
    """The result in a file.

    Raises:
        ResultError: if the file holds something else.
        FileNotFoundError: if there is none.
    """
    try:
        return Result.model_validate_json(path.read_text("utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ResultError(f"{path} holds no result: {_first(error)}") from error


def read_results(paths: Sequence[Path]) -> list[Result]:
    """The results in files and below folders, sorted by experiment and seed.

    In a folder only files of our format are read: others' JSON may lie beside them. Runs that diverged are `read_diverged`'s.

    Raises:
        ResultError: if a file that was named holds no result, or a folder neither a result nor a run that diverged.
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


def read_run(path: Path) -> Result | Diverged:
    """What a run left in a file, be it that it diverged.

    Raises:
        ResultError: if the file holds something else.
        FileNotFoundError: if there is none.
    """
    if _format(path) != _DIVERGED:
        return read_result(path)
    try:
        return Diverged.model_validate_json(path.read_text("utf-8"))
    except ValidationError as error:
        raise ResultError(f"{path} holds no diverged run: {_first(error)}") from error


def read_diverged(paths: Sequence[Path]) -> list[Diverged]:
    """The runs that diverged, in files and below folders, sorted by experiment and seed.

    Raises:
        ResultError: if a file says that it is one and is damaged.
    """
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


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
