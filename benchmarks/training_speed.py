"""Training compared with Flower's simulation and a plain loop: the same job and local update, in one run.

Ten members with 1,000 images train MOON's CNN for two local epochs a round (`benchmarks/peers/training_job.py`). Each way is a
process in the peers' environment, and the ways alternate. Two promises: members × epochs per second in the rounds after the
first, and a whole job of five rounds from the process's start to its end, including imports, workers and Ray. All ways must end
with the same weights up to rounding; otherwise nothing is compared.

    .venv/bin/python -m benchmarks.training_speed --output runs/bench-training.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.reports import write_findings

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / "benchmarks/peers/.venv/bin/python"
WAYS = ("flower", "ours", "plain")
MEMBERS, EPOCHS, ROUNDS = 10, 2, 5
LEAST_ROUNDS, LEAST_JOB = 1.25, 1.8
TOLERANCE = 1e-4  # of a weight: float32 means in another order, over five rounds; 2.2e-5 was observed


class BenchError(Exception):
    """A way that failed, or that gave different weights."""


def once(way: str, workers: int, records: int, folder: Path) -> dict[str, Any]:
    """Run one job by one way.

    Raises:
        BenchError: if its process failed, with the end of its output.
    """
    weights = folder / f"{way}.npz"
    words = [way, "--workers", workers, "--output", weights, "--members", MEMBERS, "--records", records]
    words += ["--epochs", EPOCHS, "--rounds", ROUNDS]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    began = time.monotonic()
    done = subprocess.run(
        [str(PEERS_PYTHON), "-m", "benchmarks.peers.training_job", *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    job_s = time.monotonic() - began
    if done.returncode:
        raise BenchError(f"{way}: {done.stderr[-2_000:]}")
    rounds = json.loads(done.stdout.splitlines()[-1])["rounds_s"]
    if len(rounds) != ROUNDS - 1:
        raise BenchError(f"{way} ended {len(rounds) + 1} rounds of {ROUNDS}: {done.stderr[-2_000:]}")
    with np.load(weights) as file:
        kept = {name: file[name] for name in file.files}
    return {"job_s": job_s, "rounds_s": rounds, "weights": kept}


def measured(workers: int, records: int, repeats: int) -> dict[str, Any]:
    """Return every way's figures, as medians over the repeats, and the two ratios.

    Raises:
        BenchError: as `once`, or if the ways' final weights differ.
    """
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            for way in WAYS if repeat % 2 == 0 else reversed(WAYS):
                runs[way].append(once(way, workers, records, Path(folder)))
    difference = max(
        float(np.abs(run["weights"][name] - runs["plain"][0]["weights"][name]).max())
        for way in WAYS
        for run in runs[way]
        for name in run["weights"]
    )
    if difference > TOLERANCE:
        raise BenchError(f"the ways end {difference:.1e} apart, so they did not train the same")
    ways = {}
    for way in WAYS:
        round_s = statistics.median(second for run in runs[way] for second in run["rounds_s"])
        job_s = statistics.median(run["job_s"] for run in runs[way])
        ways[way] = {
            "round_s": round_s,
            "member_epochs_per_s": MEMBERS * EPOCHS / round_s,
            "job_s": job_s,
            "every_job_s": [run["job_s"] for run in runs[way]],
        }
    promises = [
        promise(
            "members × epochs a second after the first round",
            ways["ours"]["member_epochs_per_s"] / ways["flower"]["member_epochs_per_s"],
            LEAST_ROUNDS,
        ),
        promise(
            f"a whole job of {ROUNDS} rounds", ways["flower"]["job_s"] / ways["ours"]["job_s"], LEAST_JOB
        ),
    ]
    return {
        "job": {"members": MEMBERS, "records": records, "epochs": EPOCHS, "rounds": ROUNDS},
        "workers": workers,
        "repeats": repeats,
        "load_average": os.getloadavg()[0],
        "largest_difference_of_a_weight": difference,
        "ways": ways,
        "promises": promises,
    }


def promise(name: str, ratio: float, at_least: float) -> dict[str, Any]:
    return {
        "promise": f"{name}, over Flower's",
        "ratio": ratio,
        "at_least": at_least,
        "kept": ratio >= at_least,
    }


def show(found: dict[str, Any]) -> None:
    console = Console()
    ways = Table("way", "a round, s", "members × epochs / s", "job, s", title="Training")
    for way, own in found["ways"].items():
        ways.add_row(way, f"{own['round_s']:.2f}", f"{own['member_epochs_per_s']:.1f}", f"{own['job_s']:.1f}")
    console.print(ways)
    promises = Table("promise", "ratio", "at least", "")
    for each in found["promises"]:
        verdict = "pass" if each["kept"] else "[bold red]FAIL"
        promises.add_row(each["promise"], f"{each['ratio']:.2f}", f"{each['at_least']:.2f}", verdict)
    console.print(promises)
    cores = os.cpu_count() or 1
    console.print(
        f"The ways end {found['largest_difference_of_a_weight']:.1e} apart. Load {found['load_average']:.1f} on {cores} cores"
        + (": too busy for figures, read the ratios alone." if found["load_average"] > 1.5 * cores else ".")
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/bench-training.json"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--records", type=int, default=1_000, help="images a member")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if not PEERS_PYTHON.exists():
        sys.exit("bench-training: `make bench-peers` builds the environment that holds Flower")
    try:
        found = measured(args.workers, args.records, args.repeats)
    except BenchError as error:
        sys.exit(f"bench-training: {error}")
    write_findings(found, args.output)
    show(found)
    return 0 if all(each["kept"] for each in found["promises"]) else 1


if __name__ == "__main__":
    sys.exit(main())
