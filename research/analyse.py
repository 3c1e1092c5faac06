"""Run an experiment and add analyses of models and heads for the report; every member is trained once more.

    .venv/bin/python -m research.analyse research/experiments/ccvr-fedavg.toml --variant small --output runs/analysed/ccvr-fedavg

A run that has ended is not trained again: the same command on `veilsum train`'s output folder adds the analyses.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.analysis import analyse, member_models, sweep
from research.results import AnalysedResult
from training.calibrating import VIRTUAL_PER_CLASS, MemberFeatures
from training.data.folder import DataError
from training.evaluate import extract_features
from training.experiments.choices import ConfigError
from training.experiments.config import Experiment, load_changed
from training.experiments.running import FinishedRun, run_experiment
from training.federated import DivergedError
from training.hardware import CPU_HARDWARE, Hardware
from training.results import write_result
from training.resume import ResumeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    from research.results import Sweep

_RIDGES = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
_VIRTUAL = (10, 50, 100, 500, 1000, 2000)  # from 50 on CCVR's own (Luo et al. 2021, §5.5)


def analysed(
    experiment: Experiment, finished: FinishedRun, *, workers: int = 1, hardware: Hardware = CPU_HARDWARE
) -> AnalysedResult:
    """Return the run's result with its analyses and the sweeps of its calibrations. Their cost is not counted."""
    trained, data, partition = finished.trained, finished.prepared.data, finished.prepared.partition
    classifier, labels, predicted = trained.classifier, data.test.y.numpy(), finished.predicted
    right = {kind: int((answers == labels).sum()) for kind, answers in predicted.items() if kind != "none"}
    shown = {kind: predicted[kind] for kind in ("none", max(right, key=right.__getitem__, default="none"))}
    members = member_models(trained, data.train, partition, workers=workers, hardware=hardware)
    seed = trained.recipe.seed
    found = analyse(classifier, members, data.test, predicted=shown, seed=seed)
    with hardware.on_device(classifier):
        held = MemberFeatures.compute_features(classifier, data.train, partition, seed=seed)
        z = extract_features(classifier, data.test.x).numpy()
    sweeps = tuple(_sweeps(experiment.calibrate, held, z, labels))
    return AnalysedResult(**finished.result.model_dump(), analyses=found, sweeps=sweeps)


def _sweeps(
    wanted: Mapping[str, Mapping[str, Any]],
    held: MemberFeatures,
    z: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
) -> Iterator[Sweep]:
    if "ffc" in wanted:
        yield sweep("ffc", held, z, labels, "ridge", _RIDGES, **wanted["ffc"])
    if "ccvr" in wanted:
        own = wanted["ccvr"].get("per_class", VIRTUAL_PER_CLASS)
        counts = [count for count in _VIRTUAL if count < own]  # no more work and memory than the run itself
        yield sweep("ccvr", held, z, labels, "per_class", [*counts, own], **wanted["ccvr"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", help="an experiment file, or an installed experiment's name")
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's if not given")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    if args.seed < 0 or args.workers < 1:
        parser.error("--seed takes 0 or more, --workers 1 or more")
    folder = args.output / f"seed-{args.seed}"
    try:
        hardware = Hardware.choose_device(args.device)
    except ValueError as error:
        parser.error(f"--device: {error}")
    try:
        experiment = load_changed(args.experiment, args.variant, args.changes)
        folder.mkdir(parents=True, exist_ok=True)
        finished = run_experiment(
            experiment,
            args.seed,
            folder=args.data,
            snapshot=folder / "run",
            workers=args.workers,
            hardware=hardware,
        )
    except (ConfigError, DataError, DivergedError, ResumeError, OSError) as error:
        parser.error(str(error))
    write_result(
        analysed(experiment, finished, workers=args.workers, hardware=hardware), folder / "result.json"
    )
    print(f"{experiment.name} seed {args.seed}: {folder / 'result.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
