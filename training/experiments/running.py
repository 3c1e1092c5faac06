"""One experiment under one seed: data, partition, training, calibrations, result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import torch

from training.calibrating import MemberFeatures, fit_calibration
from training.data.catalogue import load_dataset
from training.data.dataset import Dataset, Split, draw_stratified
from training.evaluate import accuracy, accuracy_by_class, extract_features, head_logits
from training.experiments.choices import DEALS, ConfigError, make_choice
from training.experiments.config import Experiment
from training.federated import DivergedError, Trained, train
from training.hardware import CPU_HARDWARE, Hardware
from training.partition import Partition
from training.personal import OwnRecords, keep_back, personal_accuracies
from training.recipe import Recipe
from training.results import (
    Calibration,
    Data,
    Deal,
    Diverged,
    Machine,
    RunCost,
    RunResult,
    history_lines,
    per_class,
)
from training.resume import RoundRecord
from training.seeding import Stream, make_generator
from veilsum.calibration import CalibrationError


@dataclass(frozen=True, eq=False)
class PreparedData:
    """An experiment's data under a seed.

    Attributes:
        validation: training records held out before the deal.
    """

    data: Split
    partition: Partition
    kept_back: OwnRecords | None = None
    validation: Dataset | None = None


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run and its result.

    Predicted classes of the test records are by head: "none" is the trained head.
    """

    trained: Trained
    prepared: PreparedData
    result: RunResult
    predicted: Mapping[str, npt.NDArray[np.int64]]


def prepare_data(experiment: Experiment, seed: int, folder: Path | None = None) -> PreparedData:
    """Read an experiment's records and deal them.

    `seed` is of the deal, and of the digits' test split; a smaller training set does not depend on it.

    Raises:
        DataError: the records are missing.
        ConfigError: they cannot be dealt as chosen.
    """
    choice = experiment.data
    split = (
        seed if choice.name == "digits" else 0
    )  # other sets have a fixed split: several seeds read them once
    data = _read_split(choice.name, folder, choice.side, split)
    if choice.pooled:
        data = Split(_pool_split(data), data.test)
    data = Split(_sample_records(data.train, choice.train_records), data.test)
    validation = None
    if choice.validation:
        held_out = _draw_indices(data.train, max(1, round(choice.validation * len(data.train))))
        used = torch.ones(len(data.train), dtype=torch.bool).index_fill(0, held_out, value=False)
        validation = data.train.subset(held_out)
        data = Split(data.train.subset(used.nonzero().squeeze(1)), data.test)
    try:
        partition = make_choice(DEALS, experiment.deal, "deal")(
            data.train, make_generator(seed, Stream.PARTITION)
        )
        partition.check()
        if experiment.personal is None:
            return PreparedData(data, partition, validation=validation)
        kept_back = keep_back(partition, data.train.y.numpy(), experiment.personal.keep_back, seed)
        if choice.pooled:  # the publisher's test records are among the training records
            kept = np.concatenate(kept_back.test.members)
            data = Split(data.train, data.train.subset(torch.from_numpy(kept)))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"deal: {error}") from error
    return PreparedData(data, kept_back.train, kept_back, validation)


class How(TypedDict, total=False):
    """Keywords of `train`."""

    progress: Callable[[RoundRecord], None] | None
    within: Callable[[int, int, int], None] | None
    workers: int
    hardware: Hardware
    snapshot: Path | None
    snapshot_every: int
    evaluate_every: int


def run_experiment(
    experiment: Experiment, seed: int, *, folder: Path | None = None, **how: Unpack[How]
) -> FinishedRun:
    """Train as `train` does, with its keywords, then calibrate and evaluate. Raises ConfigError if a calibration or a personal method can't be fitted or applied."""
    wall, cpu = time.perf_counter(), _processor_s()
    made: list[RoundRecord] = []
    progress = how.get("progress")

    def watch(record: RoundRecord) -> None:
        made.append(record)
        if progress is not None:
            progress(record)

    prepared = prepare_data(experiment, seed, folder)
    data = prepared.data
    watched = Split(data.train, _sample_records(data.test, experiment.data.watched))
    how["progress"] = watch
    trained = train(experiment.make_recipe(data.train, seed), watched, prepared.partition, **how)
    found = finish_run(experiment, seed, prepared, trained, hardware=how.get("hardware", CPU_HARDWARE))
    # Rounds of an interrupted process count by their wall-clock time; its CPU time is unknown.
    earlier = sum(line.seconds for line in trained.history[: -len(made) or None])
    cost = found.result.cost.model_copy(
        update={
            "wall_s": time.perf_counter() - wall + earlier,
            "cpu_s": _processor_s() - cpu if len(made) == len(trained.history) else None,
        }
    )
    return replace(found, result=found.result.model_copy(update={"cost": cost}))


def finish_run(
    experiment: Experiment,
    seed: int,
    prepared: PreparedData,
    trained: Trained,
    *,
    hardware: Hardware = CPU_HARDWARE,
    place: str | None = None,
) -> FinishedRun:
    """Calibrate and evaluate a run that was trained at a place, by default the hardware's device."""
    began = time.perf_counter()
    data, partition, recipe = prepared.data, prepared.partition, trained.recipe
    classifier = trained.classifier
    personal = {}
    with hardware.on_device(classifier):
        held = (
            MemberFeatures.compute_features(classifier, data.train, partition, seed=seed)
            if experiment.calibrate
            else None
        )
        z = extract_features(classifier, data.test.x)
        answers = head_logits(classifier, z).argmax(dim=1).numpy()
        validation = None if prepared.validation is None else accuracy(classifier, prepared.validation)
        if experiment.personal is not None and prepared.kept_back is not None:
            for method, options in experiment.personal.methods.items():
                with _name_setting(f"personal.methods.{method}"):
                    personal[method] = personal_accuracies(
                        trained, data.train, prepared.kept_back, method, **options
                    )
    test, labels = z.numpy(), data.test.y.numpy()
    calibrations, predicted = _fit_calibrations(experiment, held, test, labels)
    result = RunResult(
        **_run_facts(experiment, seed, prepared, recipe, place or hardware.device),
        paper_row=experiment.paper_row,
        history=history_lines(trained.history),
        accuracy=float((answers == labels).mean()),
        per_class=per_class(accuracy_by_class(answers, labels, data.test.classes)),
        validation=validation,
        calibrations=calibrations,
        personal=personal,
        cost=RunCost(
            wall_s=time.perf_counter() - began + sum(line.seconds for line in trained.history),
            cpu_s=None,
            upload_bytes=_upload_bytes(trained),
            parameters=sum(p.numel() for p in classifier.parameters() if p.requires_grad),
        ),
    )
    return FinishedRun(trained, prepared, result, {"none": answers, **predicted})


def diverged_result(
    experiment: Experiment,
    seed: int,
    error: DivergedError,
    *,
    folder: Path | None = None,
    hardware: Hardware = CPU_HARDWARE,
    place: str | None = None,
) -> Diverged:
    """Make the result file's content for a run that ended in this error at a place, by default the hardware's device; the other arguments are the run's."""
    prepared = prepare_data(experiment, seed, folder)
    recipe = experiment.make_recipe(prepared.data.train, seed)
    facts = _run_facts(experiment, seed, prepared, recipe, place or hardware.device)
    return Diverged(**facts, round=error.round, lr=error.lr)


def _run_facts(
    experiment: Experiment, seed: int, prepared: PreparedData, recipe: Recipe, device: str
) -> dict[str, Any]:
    """What every run states."""
    choice = experiment.data
    deal = {"name": experiment.deal} if isinstance(experiment.deal, str) else dict(experiment.deal)
    return {
        "experiment": experiment.name,
        "method": experiment.method,
        "scale": experiment.scale,
        "seed": seed,
        "recipe": recipe.describe(),
        "data": Data.describe_split(
            prepared.data, prepared.partition, stands_in_for=choice.stands_in_for, note=choice.note
        ),
        "deal": Deal.describe_partition(prepared.partition, deal.pop("name"), **deal),
        "environment": Machine.describe_machine(device=device),
    }


def _upload_bytes(trained: Trained) -> int:
    """Return the bytes that a member sends in a round, without calibration unless every round ends in one."""
    plain = [line for line in trained.history if not trained.recipe.calibrates_after(line.round - 1)]
    return (plain or trained.history)[-1].upload_bytes


def _processor_s() -> float:
    """Return CPU seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


def _fit_calibrations(
    experiment: Experiment,
    held: MemberFeatures | None,
    test: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
) -> tuple[tuple[Calibration, ...], dict[str, npt.NDArray[np.int64]]]:
    """Fit each calibration, and predict the test records, features (n, l) and labels (n,), by kind."""
    if held is None:
        return (), {}
    found, predicted = [], {}
    for kind, options in experiment.calibrate.items():
        with _name_setting(f"calibrate.{kind}"):
            fitted = fit_calibration(kind, held, **options)
            predicted[kind] = fitted.predict(test)
        found.append(
            Calibration(
                kind=kind,
                accuracy=float((predicted[kind] == labels).mean()),
                per_class=per_class(accuracy_by_class(predicted[kind], labels, held.classes)),
                upload_bytes=fitted.upload_bytes,
                seconds=fitted.seconds,
                options=fitted.options,
            )
        )
    return tuple(found), predicted


@contextmanager
def _name_setting(setting: str) -> Iterator[None]:
    """Name the setting whose head can't be fitted or applied."""
    try:
        yield
    except (CalibrationError, FloatingPointError) as error:
        raise ConfigError(
            f"{setting}: {error}. Change its options, or set {setting}=false: what a snapshot holds is not trained again"
        ) from error


def _pool_split(data: Split) -> Dataset:
    train, test = data
    groups = None
    if train.groups is not None and test.groups is not None:
        groups = torch.cat([train.groups, test.groups])
    return replace(train, x=torch.cat([train.x, test.x]), y=torch.cat([train.y, test.y]), groups=groups)


@lru_cache(maxsize=1)
def _read_split(name: str, folder: Path | None, side: int | None, seed: int) -> Split:
    # Some take minutes, and several seeds share them.
    return load_dataset(name, folder, side=side, seed=seed)


def _sample_records(data: Dataset, records: int | None) -> Dataset:
    if records is None or records >= len(data):
        return data
    return data.subset(_draw_indices(data, records))


def _draw_indices(data: Dataset, records: int) -> torch.Tensor:
    return draw_stratified(data.y, records, torch.Generator().manual_seed(0))
