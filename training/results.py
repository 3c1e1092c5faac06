"""The result file: one small JSON file per run and seed that names everything its numbers depend on.

Runs that differ only in the seed share `experiment`.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from training.data.dataset import Split
from training.partition import Partition
from training.resume import RoundRecord

Fraction = Annotated[float, Field(ge=0, le=1)]
# The accuracy of a class without test records is null in the file and NaN in arrays.
PerClass = tuple[Fraction | None, ...]


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A number that is not finite is null in the file.
Finite = Annotated[float | None, BeforeValidator(_finite_or_none)]


class Part(BaseModel):
    """A table of the file: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Part):
    """The records of a run.

    Attributes:
        name: for reports, such as "Fashion-MNIST".
        classes: C.
        train_records: distinct records that members trained on.
        test_records: records held out.
        shape: (channels, height, width), or (length,) of vectors.
        stands_in_for: the paper's data set if it differs from this one.
        note: other differences from the publisher's files, such as "JPEG, not bit-exact" or "10,000 of 60,000".
        available: records to deal; shards may leave some out and members may keep some back. None in
            files that state them as `train_records`.
    """

    name: str
    classes: int
    train_records: int
    test_records: int
    shape: tuple[int, ...]
    stands_in_for: str | None = None
    note: str = ""
    available: int | None = None

    @property
    def records(self) -> int:
        """Records to deal, which do not depend on the seed."""
        return self.train_records if self.available is None else self.available

    @classmethod
    def describe_split(
        cls, split: Split, partition: Partition, *, stands_in_for: str | None = None, note: str = ""
    ) -> Self:
        """Describe a split of which members train on what `partition` deals."""
        return cls(
            name=split.train.name,
            classes=split.train.classes,
            train_records=len(np.unique(np.concatenate(partition.members))),
            test_records=len(split.test),
            shape=split.train.shape,
            stands_in_for=stands_in_for,
            note=note,
            available=len(split.train),
        )


class Deal(Part):
    """The partition: how records were dealt, such as "dirichlet", its options, and what `Partition` holds."""

    kind: str
    options: dict[str, Any] = Field(default_factory=dict)
    digest: str
    label_counts: tuple[tuple[int, ...], ...]
    moved: int = 0

    @classmethod
    def describe_partition(cls, partition: Partition, kind: str, **options: Any) -> Self:
        return cls(
            kind=kind,
            options=options,
            digest=partition.digest,
            label_counts=tuple(map(tuple, partition.label_counts.tolist())),
            moved=partition.moved,
        )


class Line(Part):
    """One round: a `RoundRecord` without the number of rounds. Rounds without an evaluation have no accuracy."""

    round: int
    lr: float
    local_loss: Finite
    test_loss: Finite
    accuracy: Annotated[Fraction | None, BeforeValidator(_finite_or_none)]
    seconds: float


class Calibration(Part):
    """A head fitted after training.

    Attributes:
        kind: "ffc", "rff" (ridge on random features), "ccvr", "lda", "ncm" or "all-data".
        accuracy, per_class: on the test records.
        upload_bytes: bytes that a member sends for it.
        seconds: wall-clock time of the fit, statistics included.
        options: such as {"ridge": 0.1}.
    """

    kind: str
    accuracy: Fraction
    per_class: PerClass = ()
    upload_bytes: int | None = None
    seconds: float | None = None
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


class RunCost(Part):
    """Time of all processes, traffic of a member in one round of training, and trained parameters of a run."""

    wall_s: float
    cpu_s: float | None = None
    upload_bytes: int | None = None
    parameters: int | None = None


class Machine(Part):
    """Versions and hardware, without anything that identifies the machine."""

    python: str
    torch: str
    numpy: str
    processor: str
    threads: int
    device: str = "cpu"

    @classmethod
    def describe_machine(cls, *, device: str = "cpu") -> Self:
        """Describe this machine; members train on one thread each."""
        return cls(
            python=platform.python_version(),
            torch=torch.__version__,
            numpy=np.__version__,
            processor=_processor_name(),
            threads=1,
            device=device,
        )


class RunFacts(Part):
    """What every run states.

    Attributes:
        method: its name in tables, such as "SphereFed × FedNova".
        scale: how it is smaller than the paper's run, in words; "" if it is not.
        recipe: `Recipe.describe()`.
    """

    format: str  # first: another layout is named before what it lacks
    experiment: str
    method: str
    scale: str = ""
    seed: int
    recipe: dict[str, Any]
    data: Data
    deal: Deal
    environment: Machine


class RunResult(RunFacts):
    """A run to its end.

    Attributes:
        paper_row: the row of the papers' tables to compare with (`research/tables`).
        validation: of the trained classifier, on the validation split; None without one.
        personal: by method, each member's accuracy on its own held-out records.
    """

    format: Literal["veilsum/result/1"] = "veilsum/result/1"
    paper_row: str | None = None
    history: tuple[Line, ...]
    accuracy: Fraction
    per_class: PerClass = ()
    validation: Fraction | None = None
    calibrations: tuple[Calibration, ...] = ()
    personal: dict[str, tuple[Fraction, ...]] = Field(default_factory=dict)
    cost: RunCost

    def accuracy_after(self, kind: str) -> float | None:
        """Return the accuracy of a calibration, or of the trained head if `kind` is "none"; None if there is none."""
        if kind == "none":
            return self.accuracy
        return next((each.accuracy for each in self.calibrations if each.kind == kind), None)

    def by_member(self, kind: str = "none") -> tuple[float, ...]:
        """Return each member's accuracy under a head: the test accuracies by class, in the shares of the member's own records.

        Classes without test records do not count. Empty without accuracies by class; NaN for a member without such a class.
        """
        found = (
            [self.per_class] if kind == "none" else [c.per_class for c in self.calibrations if c.kind == kind]
        )
        if not found or not found[0]:
            return ()
        accuracies = np.array(found[0], dtype=np.float64)
        counts = np.array(self.deal.label_counts)[:, : len(accuracies)]
        accuracies = accuracies[: counts.shape[1]]  # members may hold none of the last classes
        counts = counts * np.isfinite(accuracies)
        with np.errstate(invalid="ignore"):
            means: list[float] = (counts @ np.nan_to_num(accuracies) / counts.sum(axis=1)).tolist()
        return tuple(means)

    def worst_decile(self, kind: str = "none") -> float | None:
        """Return the mean of `by_member` over the tenth of the members, at least one, with the lowest; None if it is unknown."""
        return worst_decile(self.by_member(kind))


class Diverged(RunFacts):
    """A run that diverged: its loss became infinite or NaN, or its features collapsed. Reports list it, because leaving it out would flatter its method.

    Its round counts from 1; η is of that round.
    """

    format: Literal["veilsum/diverged/1"] = "veilsum/diverged/1"
    round: int
    lr: float


def worst_decile(accuracies: Iterable[float]) -> float | None:
    """Return the mean of the lowest tenth of members' accuracies, at least one; None without any."""
    known = sorted(value for value in accuracies if not math.isnan(value))
    return fmean(known[: math.ceil(len(known) / 10)]) if known else None


def history_lines(history: Iterable[RoundRecord]) -> tuple[Line, ...]:
    """Convert a history for a result."""
    return tuple(Line(**{name: getattr(record, name) for name in Line.model_fields}) for record in history)


def per_class(accuracies: npt.NDArray[np.floating]) -> PerClass:
    """Convert accuracies by class, (C,), for a result: NaN becomes null."""
    return tuple(None if np.isnan(value) else float(value) for value in accuracies)


def write_result(result: RunResult | Diverged, path: Path, *, indent: int | None = 1) -> None:
    """Write a result file atomically, on one line if `indent` is None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(result.model_dump_json(indent=indent) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _processor_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
