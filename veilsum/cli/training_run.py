"""Run the experiments of `veilsum train` for each seed, and write their output folders."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from math import isnan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from training.checkpoint import save_checkpoint
from training.data.dataset import Dataset
from training.evaluate import extract_features
from training.experiments.config import Experiment, load_changed, load_experiment
from training.experiments.running import diverged_result, run_experiment
from training.federated import DivergedError
from training.hardware import Hardware
from training.heads import Classifier
from training.partition import Partition
from training.results import RunResult, worst_decile, write_result
from training.resume import RoundRecord
from veilsum.protocol.errors import Misuse

DIGITS_PREPROCESSING = "scikit-learn digits, 8x8, divided by 16"
_PROGRESS_EVERY_S = 10


@dataclass(frozen=True)
class Choices:
    """The options of `veilsum train`, described in its help, and the experiment that they select."""

    experiment: str
    variants: tuple[str, ...]
    changes: tuple[str, ...]
    seeds: tuple[int, ...]
    data: Path | None
    workers: int
    device: str
    features: bool
    snapshot_every: int
    evaluate_every: int
    loaded: Experiment = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loaded", load_changed(self.experiment, self.variants, self.changes))


def run_all(choices: Choices, output: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run every seed, and summarise the runs.

    Each seed has an output folder `seed-N` with `run`, from which an interrupted run resumes, `result.json`, `extractor.safetensors` and,
    with `features`, `member-NN.npz` and `test.npz`.

    Raises:
        Misuse: the device is unusable, or some of several seeds diverged; the other seeds' folders are complete.
        DivergedError: the only seed diverged.
    """
    try:
        hardware = Hardware.choose_device(choices.device)
    except ValueError as error:
        raise Misuse(f"--device: {error}") from error
    output.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    results, left = _run_seeds(choices, output, hardware, tell)
    if left:
        seed, first = next(iter(left.items()))
        if len(choices.seeds) == 1:
            raise first
        raise Misuse(
            f"{len(left)} of {len(choices.seeds)} seeds diverged, the others' results are in {output}; seed {seed}: {first}"
        )
    return _summarise_results(choices.loaded, results, output)


def _run_seeds(
    choices: Choices, output: Path, hardware: Hardware, tell: Callable[[str], None]
) -> tuple[list[RunResult], dict[int, DivergedError]]:
    """Run every seed, and return the results and the seeds that diverged."""
    results, left = [], {}
    for seed in choices.seeds:
        try:
            results.append(_run_seed(choices, seed, output / f"seed-{seed}", hardware, tell))
        except DivergedError as error:
            left[seed] = error
    return results, left


def _run_seed(
    choices: Choices, seed: int, folder: Path, hardware: Hardware, tell: Callable[[str], None]
) -> RunResult:
    folder.mkdir(parents=True, exist_ok=True)
    experiment = choices.loaded
    title = f"{experiment.name} seed {seed}"
    with lock_folder(folder):
        progress = _Progress(title, tell)
        try:
            finished = run_experiment(
                experiment,
                seed,
                folder=choices.data,
                snapshot=folder / "run",
                snapshot_every=choices.snapshot_every,
                evaluate_every=choices.evaluate_every,
                workers=choices.workers,
                hardware=hardware,
                progress=progress,
                within=progress.report_within,
            )
        except DivergedError as error:
            left = diverged_result(experiment, seed, error, folder=choices.data, hardware=hardware)
            write_result(left, folder / "result.json")
            raise
        result = finished.result
        with hardware.on_device(finished.trained.classifier):
            if choices.features:
                data, partition = finished.prepared.data, finished.prepared.partition
                write_members(folder, finished.trained.classifier, data.train, partition)
                write_features(folder / "test.npz", finished.trained.classifier, data.test)
    classifier = finished.trained.classifier
    preprocessing = f"{result.data.name}, {classifier.extractor.config.preprocessing}"
    save_checkpoint(classifier, folder / "extractor.safetensors", preprocessing=preprocessing)
    write_result(result, folder / "result.json")
    return result


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a seed's folder: two commands would remove each other's snapshots. Raises Misuse if it is locked."""
    try:
        with FileLock(folder / ".lock", blocking=False):
            yield
    except Timeout:
        raise Misuse(
            f"another process trains in {folder}: wait for its end, or choose another --output"
        ) from None


@dataclass
class _Progress:
    title: str
    tell: Callable[[str], None]
    began_s: float = field(default_factory=time.monotonic)
    told_s: float = field(default_factory=time.monotonic)

    def __call__(self, record: RoundRecord) -> None:
        left = record.seconds * (record.rounds - record.round)
        accuracy = "" if isnan(record.accuracy) else f"accuracy {record.accuracy:.3f}, "
        self.tell(
            f"{self.title}: round {record.round} of {record.rounds}: {accuracy}loss {record.local_loss:.3f}, about {_format_time(left)} left"
        )
        self.began_s = self.told_s = time.monotonic()

    def report_within(self, round_: int, done: int, members: int) -> None:
        """Report the progress within a round, if there was no report for a while."""
        now_s = time.monotonic()
        if now_s - self.told_s < _PROGRESS_EVERY_S or done == members:
            return
        self.told_s = now_s
        left = (now_s - self.began_s) / done * (members - done)
        self.tell(
            f"{self.title}: {done} of {members} members of round {round_}, about {_format_time(left)} left in it"
        )


def _format_time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 100 else f"{seconds:.0f} s"


def _summarise_results(experiment: Experiment, results: Sequence[RunResult], output: Path) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "experiment": experiment.name,
        "method": experiment.method,
        "seeds": [result.seed for result in results],
        **_mean_and_deviation("accuracy", [result.accuracy for result in results]),
    }
    worst = [value for result in results if (value := result.worst_decile()) is not None]
    if worst:
        summary |= _mean_and_deviation("accuracy of the worst tenth of members", worst)
    for kind in experiment.calibrate:
        found = [next(each for each in result.calibrations if each.kind == kind) for result in results]
        summary |= _mean_and_deviation(f"after {kind}", [each.accuracy for each in found])
    for method in results[0].personal:
        own = [result.personal[method] for result in results]
        summary |= _mean_and_deviation(f"own records, {method}", [mean(each) for each in own])
        summary |= _mean_and_deviation(
            f"own records, {method}, worst tenth", [worst_decile(each) or 0.0 for each in own]
        )
    if experiment.scale:
        summary["smaller than the paper's"] = experiment.scale
    if experiment.data.stands_in_for:
        summary["stands in for"] = experiment.data.stands_in_for
    return {**summary, "partitions": [result.deal.digest for result in results], "saved": str(output)}


def _mean_and_deviation(name: str, shares: Sequence[float]) -> dict[str, float]:
    deviation = {f"{name}, deviation": stdev(shares)} if len(shares) > 1 else {}
    return {name: mean(shares), **deviation}


def write_members(output: Path, classifier: Classifier, data: Dataset, partition: Partition) -> None:
    """Write each member's features and labels in the format that `veilsum member join` reads."""
    width = len(str(len(partition.members) - 1))
    for index, rows in enumerate(partition.members):
        write_features(
            output / f"member-{index:0{width}}.npz", classifier, data.subset(torch.from_numpy(rows))
        )


def write_features(
    path: Path, classifier: Classifier, data: Dataset, ids: Sequence[str] | None = None
) -> None:
    """Write features (n, dim), float32 of length 1, labels (n,), and ids if there are any."""
    features = extract_features(classifier, data.x).numpy()
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    arrays: dict[str, Any] = {
        "features": features / np.maximum(lengths, 1e-12),
        "labels": data.y.numpy(),
        **({} if ids is None else {"ids": np.array(ids)}),
    }
    np.savez(path, **arrays)


def list_experiments(available: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """List the installed experiments."""
    return [
        {"experiment": name, "variants": list(variants), "method": load_experiment(name).method}
        for name, variants in available.items()
    ]
