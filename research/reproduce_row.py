"""Run one row of a paper's table at the paper's rounds: print a time estimate, then train, resuming after interruptions.

`ccvr`: MOON's CNN on CIFAR-10 (as JPEG), Dir(0.1), K = 10, R = 100, E = 10, FedAvg and SphereFed. `hundred-classes`: TinyImageNet
at 32 px with 100 classes instead of CIFAR-100, MobileNetV2, R = 100, E = 10, FedAvg and SphereFed; this takes days on a CPU, so use
`--device cuda` or `--shortened`. Each run has a folder with a snapshot and finally `seed-N.json`, which
`python -m research.report` reads; a run with this file is not repeated.

    VEILSUM_DATA=… .venv/bin/python -m research.reproduce_row ccvr --output runs/reproduce-ccvr
"""

import argparse
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from research.papers import paper_experiment
from training.data.dataset import Split
from training.experiments.config import Experiment
from training.experiments.running import prepare_data, run_experiment
from training.federated import train
from training.hardware import Hardware
from training.partition import Partition
from training.results import write_result
from training.resume import RoundRecord

ROWS = {
    "ccvr": (("ccvr-fedavg", "jpeg"), ("ccvr-spherefed", "jpeg")),
    "hundred-classes": (
        ("spherefed-fedavg-mobilenetv2", "tinyimagenet-100"),
        ("spherefed-fedavg-mobilenetv2-ours", "tinyimagenet-100"),
    ),
}
SHORTENED = {"hundred-classes"}


def experiments(row: str, *, shortened: bool) -> list[Experiment]:
    """Return a row's experiments."""
    return [paper_experiment(name, "shortened" if shortened else variant) for name, variant in ROWS[row]]


def images_per_s(experiment: Experiment, data: Split, hardware: Hardware) -> float:
    """Measure the training speed of one process: on five batches of CPU time, or on 60 of a GPU, whose first ones are slow."""
    clock = time.process_time if hardware.is_cpu else time.perf_counter
    few, many = (1, 6) if hardware.is_cpu else (20, 80)
    recipe = replace(experiment.make_recipe(data.train, 0), rounds=1, local_epochs=1)
    watched = data.test.subset(torch.arange(1))

    def seconds(batches: int) -> float:
        own = data.train.subset(torch.arange(batches * recipe.batch_size))
        alone = Partition.of([np.arange(len(own))], own.y.numpy())
        began = clock()
        train(recipe, Split(own, watched), alone, hardware=hardware)
        return clock() - began

    seconds(few)  # warm-up
    return (many - few) * recipe.batch_size / max(seconds(many) - seconds(few), 1e-9)


def estimate(
    experiment: Experiment, folder: Path | None, hardware: Hardware, workers: int
) -> tuple[float, float]:
    """Return images per second of one process, and hours of training for one seed with all workers."""
    data = prepare_data(experiment, 0, folder).data
    rate = images_per_s(experiment, data, hardware)
    choice = experiment.training
    passes = choice.rounds * choice.local_epochs * choice.participation * len(data.train)
    return rate, passes / rate / workers / 3600


def processes(wanted: int | None, device: str) -> int:
    """Return the given number of processes; by default one per core, or one on a GPU."""
    return wanted or ((os.cpu_count() or 1) if device == "cpu" else 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's where not given")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument(
        "--workers", type=int, help="processes: as many as cores, or one on a GPU, where not given"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shortened", action="store_true", help="a few rounds on few records")
    parser.add_argument("--estimate", action="store_true", help="say how long it takes, and stop")
    args = parser.parse_args()
    if args.shortened and args.row not in SHORTENED:
        parser.error(
            f"{args.row} has no shortened form; `veilsum train research/experiments/ccvr-fedavg.toml --variant small` is one"
        )
    torch.set_num_threads(1)
    hardware = Hardware.choose_device(args.device)
    workers = processes(args.workers, args.device)
    wanted = experiments(args.row, shortened=args.shortened)
    for experiment in wanted:
        rate, hours = estimate(experiment, args.data, hardware, workers)
        print(
            f"{experiment.name}: {rate:,.0f} images a second and process, so about {hours:.1f} h of training a seed"
            f" with {workers} of them on idle cores; {_count(args.seeds)}, less what is there",
            flush=True,
        )
    if args.estimate:
        return 0
    for experiment in wanted:
        for seed in range(args.seeds):
            finish(experiment, seed, args.output, args.data, workers, hardware)
    return 0


def _count(seeds: int) -> str:
    return f"{seeds} seed" + ("" if seeds == 1 else "s")


def finish(
    experiment: Experiment, seed: int, output: Path, data: Path | None, workers: int, hardware: Hardware
) -> None:
    """Run to the end, from the last snapshot if there is one, unless the result exists."""
    folder = output / experiment.name.replace("/", "-")
    file, snapshot = folder / f"seed-{seed}.json", folder / f"seed-{seed}"
    title = f"{experiment.name} seed {seed}"
    if file.exists():
        print(f"{title}: {file} is there", flush=True)
        return
    folder.mkdir(parents=True, exist_ok=True)

    def tell(record: RoundRecord) -> None:
        left = record.seconds * (record.rounds - record.round) / 60
        print(
            f"{title}: round {record.round} of {record.rounds}: {record.accuracy:.1%}, {left:.0f} min left",
            flush=True,
        )

    finished = run_experiment(
        experiment, seed, folder=data, snapshot=snapshot, workers=workers, hardware=hardware, progress=tell
    )
    write_result(finished.result, file)
    shutil.rmtree(snapshot)
    heads = ", ".join(f"{each.kind} {each.accuracy:.1%}" for each in finished.result.calibrations)
    print(f"{title}: {finished.result.accuracy:.1%}, then {heads}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
