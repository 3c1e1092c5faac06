"""The costs of the heads of docs/heads.md at the papers' size, and their accuracies on real digits.

Costs at l = 1280 and 100 classes, each promise pass or fail: the memory of CCVR's 82 million sums at a member and
at the coordinator, each in its own process. Accuracies are means over five splits of scikit-learn's digits. If a promise fails, the
exit status is 1.

    .venv/bin/python -m benchmarks.heads --output runs/heads.json
"""

import argparse
import multiprocessing
import resource
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from benchmarks.accuracy import Claim
from benchmarks.reports import write_findings
from veilsum.calibration import (
    CCVRStatistics,
    FFCStatistics,
    Head,
    RandomFeatures,
    Reliability,
    nearest_class_mean,
    solve_ccvr,
    solve_ffc,
    solve_lda,
    solve_random_features,
)
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.random_features import mean_squared_distance

ROOT = Path(__file__).parents[1]
DIM, CLASSES, ROWS = 1280, 100, 2_000
SPLITS, FITTED, HELD_OUT = 5, 1_100, 250
MB = 1e6


def unit_records(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, DIM))
    return features / np.linalg.norm(features, axis=1, keepdims=True), rng.integers(0, CLASSES, rows)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


def member_mb() -> float:
    """Measure a member that sums and rounds its records."""
    records, before = unit_records(ROWS), peak_mb()
    statistics = CCVRStatistics(DIM, CLASSES)
    statistics.update(*records)
    statistics.vector(SumsLattice(31))
    return peak_mb() - before


def coordinator_mb() -> float:
    """Measure a coordinator that reads a sum and a class's Gaussian from it."""
    before, pooled, lattice = peak_mb(), CCVRStatistics(DIM, CLASSES), SumsLattice(31)
    total = np.ones(pooled.layout.elements, np.int64)
    total[:CLASSES] = 2 * lattice.unit()
    pooled.add_sums(lattice, total)
    pooled.covariance(CLASSES - 1)
    return peak_mb() - before


def digits() -> dict[str, float]:
    """Return mean accuracies and calibration errors over the splits."""
    images, labels = load_digits(return_X_y=True)
    rows = images / np.linalg.norm(images, axis=1, keepdims=True)
    seen = defaultdict[str, list[float]](list)
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(rows))
        fit, held_out, test = np.split(order, [FITTED, FITTED + HELD_OUT])
        statistics = FFCStatistics(64, 10, constant=True)
        moments = CCVRStatistics(64, 10)
        for each in (statistics, moments):
            each.update(rows[fit], labels[fit])
        ridge, rng = solve_ffc(statistics), np.random.default_rng(seed)
        heads: dict[str, Head] = {
            "ridge, λ by GCV": ridge,
            "ridge, unit columns": ridge.with_unit_columns(),
            "nearest class mean": nearest_class_mean(statistics),
            "LDA": solve_lda(statistics),
            "CCVR, 300 a class": solve_ccvr(moments, rng, per_class=300),
            "CCVR, 300 a class, no ReLU, no Tukey": solve_ccvr(moments, rng, per_class=300, power=None),
        }
        for size in (512, 2048):
            phi = RandomFeatures(
                64, size, np.sqrt(mean_squared_distance(statistics)), seed.to_bytes(4, "little")
            )
            mapped = FFCStatistics(size, 10)
            mapped.update(phi(rows[fit]), labels[fit])
            heads[f"{size} random features"] = solve_random_features(mapped, phi, [size])
        for name, head in heads.items():
            seen[name].append((head.predict(rows[test]) == labels[test]).mean())
        found = Reliability.of(ridge, rows[held_out], labels[held_out]).temperature
        for name, temperature in (("1", 1.0), ("of records held out", found)):
            judged = Reliability.of(ridge, rows[test], labels[test], temperatures=[temperature])
            seen[f"ridge, calibration error at the temperature {name}"].append(judged.calibration_errors[0])
    return {name: float(np.mean(values)) for name, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/heads.json")
    given = parser.parse_args()
    accumulator = 8 * CCVRStatistics(DIM, CLASSES).layout.elements / MB
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as alone:
        member, coordinator = alone.apply(member_mb), alone.apply(coordinator_mb)
    claims = [
        Claim("CCVR", "MB at a member", member, 2 * accumulator + 64),
        Claim("CCVR", "MB at the coordinator", coordinator, 2 * accumulator + 64),
    ]
    reported = {"MB of one accumulator": accumulator, **digits()}
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("what", "promise", "measured", "limit", "", title=f"l = {DIM}, {CLASSES} classes")
    for claim in claims:
        verdict = "pass" if claim.kept else "[bold red]FAIL"
        table.add_row(claim.round, claim.promise, f"{claim.measured:.4g}", f"≤ {claim.limit:.4g}", verdict)
    console.print(table)
    for name, figure in reported.items():
        console.print(f"{name}: {figure:.4f}", highlight=False)
    written = {"claims": [vars(claim) | {"kept": claim.kept} for claim in claims], "reported": reported}
    write_findings(written, given.output)
    if not all(claim.kept for claim in claims):
        sys.exit("heads: a promise is not kept")


if __name__ == "__main__":
    main()
