"""Run every method before and after calibration on real images, in about two hours on two cores.

Twelve methods on Fashion-MNIST and CIFAR-10 (as JPEG), Dir(0.1) and Dir(0.05), and all others on Fashion-MNIST, Dir(0.1), only:
MOON's CNN, 10,000 training records, K = 10, 20 rounds of two local epochs, three seeds. Each cell writes a JSON file for `python -m
research.report`: a result, or that it diverged. A cell with a file of the same settings is not run again, so an interrupted grid resumes.

    VEILSUM_DATA=… .venv/bin/python -m research.reproduce_small --output runs/reproduce-small
"""

import argparse
import multiprocessing
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from research.papers import paper_experiment
from training.experiments.config import Experiment, merge_tables
from training.experiments.running import diverged_result, run_experiment
from training.federated import DivergedError
from training.results import write_result
from veilsum.system.processes import end_with_parent

DATA: dict[str, dict[str, str]] = {
    "fashion-mnist": {"note": "10,000 of 60,000"},
    "cifar-10-jpeg": {"stands_in_for": "CIFAR-10", "note": "JPEG, 10,000 of 50,000"},
}
ALPHAS = (0.1, 0.05)
SEEDS = (0, 1, 2)
SPHERE = {"head": "orthonormal", "normalise": True, "loss": "mean-squared-error", "lr": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx": {"algorithm": {"name": "fedprox", "mu": 0.001}},
    "FedNova": {"algorithm": "fednova"},
    "FedAvgM": {"algorithm": {"name": "fedavgm", "momentum": 0.1}},
    "MOON": {"algorithm": {"name": "moon", "mu": 1.0, "temperature": 0.5}},
    "SCAFFOLD": {"algorithm": {"name": "scaffold", "uniform": False}},
    "FedDyn": {"algorithm": {"name": "feddyn", "alpha": 0.01}},
    "FedBABU": {"head": "random"},
    "FedUV": {"algorithm": "feduv"},
    "FedETF": {"head": "simplex"},
    "FedETF + GMV": {
        "head": "simplex",
        "algorithm": {"name": "gmv", "alpha": 1.0, "warmup": 15, "uniform": False},
    },
    "SphereFed": SPHERE,
}
"""Settings at α = 0.1. Members are weighted by their records, also in SCAFFOLD and GMV, whose papers assume members of one size and equal weights.
FedDyn alone weights members equally: its optimum is that of ΣF_k/K, the others' that of Σ n_k F_k/n.
"""
_CE = {"loss": "cross-entropy", "lr": 0.1}
_MSE = {"loss": "mean-squared-error", "lr": 0.5}
_UNBIASED = {"name": "learned", "bias": False}
OTHERS: dict[str, dict[str, Any]] = {
    "FedOpt, Adam": {"algorithm": {"name": "fedopt", "rule": "adam", "lr": 0.01}},
    "FedOpt, Yogi": {"algorithm": {"name": "fedopt", "rule": "yogi", "lr": 0.01}},
    "FedOpt, Adagrad": {"algorithm": {"name": "fedopt", "rule": "adagrad", "lr": 0.01}},
    "FedMMD": {"algorithm": "fedmmd"},
    "FedRS": {"algorithm": "fedrs"},
    "FedAwS": {"algorithm": "fedaws", "head": "normalised", "normalise": True, "loss": "positive-hinge"},
    "clsnorm": {"head": "normalised"},
    "clsprox": {"algorithm": "clsprox"},
    "clsnorm + clsprox": {"algorithm": "clsprox", "head": "normalised"},
    "FedUV, variance alone": {"algorithm": {"name": "feduv", "uniformity": 0.0}},
    "FedUV, uniformity alone": {"algorithm": {"name": "feduv", "variance": 0.0}},
    "CE, none": {"head": _UNBIASED, **_CE},
    "CE, fix-random": {"head": "uniform", **_CE},
    "CE, fix-orthonormal": {"head": "orthonormal", **_CE},
    "CE, norm": {"head": _UNBIASED, "normalise": True, **_CE},
    "CE, fix-norm": {"head": {"name": "orthonormal", "scale": 16.0}, "normalise": True, **_CE},
    "MSE, none": {"head": _UNBIASED, **_MSE},
    "MSE, fix-random": {"head": "uniform", **_MSE},
    "MSE, fix-orthonormal": {"head": "orthonormal", **_MSE},
    "MSE, norm": {"head": _UNBIASED, "normalise": True, **_MSE},
    "SphereFed, Tammes": SPHERE | {"head": "tammes"},
    "SphereFed + FedProx": SPHERE | {"algorithm": "fedprox"},
    "SphereFed + FedNova": SPHERE | {"algorithm": "fednova"},
    "SphereFed + FedOpt": SPHERE | {"algorithm": {"name": "fedopt", "rule": "adam", "lr": 0.01}},
    "SphereFed, FFC every 10 rounds": SPHERE | {"calibrate_every": 10, "lr": 0.05},
}
"""Run only on Fashion-MNIST, Dir(0.1). They include the ablation of Dong et al. 2022, Table 3; `SphereFed` is its "MSE, fix-norm".
FFC's head is longer than the fixed one, and training continues from it at a tenth of the rate: at 0.5 all features become alike.
"""
PERSONAL: dict[str, dict[str, Any]] = {
    "FedAvg, personal": {},
    "FedBABU, personal": {"head": "random"},
    "FedPer, personal": {"algorithm": "fedper"},
    "FedRep, personal": {"algorithm": {"name": "fedrep", "head_epochs": 1}},
    "LG-FedAvg, personal": {"algorithm": "lg-fedavg"},
    "SphereFed, personal": SPHERE,
}
"""Run like `OTHERS`, with a quarter of each member's own records held out to evaluate its own model."""
STRONGER: dict[str, dict[str, Any]] = {
    "FedProx": {"algorithm": {"name": "fedprox", "mu": 0.01}},
    "MOON": {"algorithm": {"name": "moon", "mu": 5.0, "temperature": 0.5}},
}
"""Other settings at α = 0.05 (Luo et al. 2021, Table 8)."""
COMMON: dict[str, Any] = {
    "scale": "MOON CNN, 10,000 records, 20 rounds of 2 epochs, images as they are",
    "data": {"train_records": 10_000, "watched": 1_000},
    "model": {"architecture": "moon_cnn"},
    "training": {"rounds": 20, "local_epochs": 2, "lr": 0.01, "schedule": "constant", "augment": False},
    "calibrate": {"rff": {"size": 1024}},
}
FITTED: dict[str, Any] = {"methods": {kind: {} for kind in ("as-trained", "ffc", "sgd", "fine-tuned")}}
LISTED = METHODS | OTHERS | PERSONAL


class Cell(NamedTuple):
    """One run."""

    data: str
    alpha: float
    method: str
    seed: int

    @property
    def experiment(self) -> Experiment:
        changes = merge_tables(
            COMMON,
            {
                "method": self.method,
                "data": {"name": self.data, **DATA[self.data]},
                "deal": {"name": "dirichlet", "members": 10, "alpha": self.alpha},
                "training": LISTED[self.method] | (STRONGER.get(self.method, {}) if self.alpha < 0.1 else {}),
                "calibrate": {} if self.method in METHODS else {"lda": {}, "ncm": {}},
            },
            {"personal": FITTED} if self.method in PERSONAL else {},
        )
        experiment = paper_experiment("ccvr-fedavg", None, changes)
        return experiment.model_copy(update={"name": f"reproduce-small/{self.slug}"})

    @property
    def slug(self) -> str:
        method = re.sub(r"[^a-z0-9]+", "-", self.method.lower())
        return f"{self.data}-{self.alpha:g}-{method}"

    def file(self, output: Path) -> Path:
        return output / self.slug / f"seed-{self.seed}.json"

    def asked(self, output: Path) -> Path:
        """The file with the cell's settings: a cell is run again if they changed."""
        return self.file(output).with_suffix(".experiment")

    def is_there(self, output: Path) -> bool:
        asked = self.asked(output)
        return self.file(output).exists() and asked.exists() and asked.read_text("utf-8") == self.settings

    @property
    def settings(self) -> str:
        return self.experiment.model_dump_json(indent=1)


def cells() -> list[Cell]:
    """List all cells, ordered so that a worker's next cell mostly has the same data."""
    others = product(("fashion-mnist",), (0.1,), OTHERS | PERSONAL, SEEDS)
    return [Cell(*each) for each in chain(product(DATA, ALPHAS, METHODS, SEEDS), others)]


def work(cell: Cell, output: Path, folder: Path | None) -> tuple[Cell, str, float]:
    torch.set_num_threads(1)
    began = time.process_time()
    cell.asked(output).parent.mkdir(parents=True, exist_ok=True)
    cell.file(output).unlink(missing_ok=True)
    cell.asked(output).write_text(cell.settings, "utf-8")
    try:
        finished = run_experiment(cell.experiment, cell.seed, folder=folder)
    except DivergedError as error:
        write_result(diverged_result(cell.experiment, cell.seed, error, folder=folder), cell.file(output))
        return cell, str(error), time.process_time() - began
    write_result(finished.result, cell.file(output))
    result = finished.result
    after = ", ".join(f"{each.kind} {each.accuracy:.1%}" for each in result.calibrations)
    return cell, f"{result.accuracy:.1%} → {after}", time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/reproduce-small"))
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's where not given")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", default=[], help="slugs to run; all where not given")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of the seeds")
    args = parser.parse_args()
    wanted = [
        cell for cell in cells() if (not args.only or cell.slug in args.only) and cell.seed < args.seeds
    ]
    missing = [cell for cell in wanted if not cell.is_there(args.output)]
    print(f"{len(wanted)} cells, {len(wanted) - len(missing)} of them there already", flush=True)
    began = time.monotonic()
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, spawning, end_with_parent) as pool:
        futures = [pool.submit(work, cell, args.output, args.data) for cell in missing]
        for number, future in enumerate(futures, 1):
            cell, outcome, cpu_s = future.result()
            left = (time.monotonic() - began) / number * (len(missing) - number)
            print(
                f"{number}/{len(missing)} {cell.slug} seed {cell.seed}: {outcome} ({cpu_s:.0f} CPU s; {left / 60:.0f} min left)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
