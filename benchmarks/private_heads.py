"""The accuracy that noise costs a head: each rule for solving noisy sums, on real and synthetic features.

Data: digits, plain and through rectified random features; synthetic clustered features; and, if a folder has
them, MNIST and Fashion-MNIST (`x_train`, `y_train`, `x_test`, `y_test` in NAME.npz) through random features. Noise is Gaussian
instead of discrete; at the discrete noise's fine grid the results can't differ visibly.

.venv/bin/python -m benchmarks.private_heads --data FOLDER --output runs/private_heads.json
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from benchmarks.secure_sum import ROOT
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.noisy_sums import solve_noisy
from veilsum.calibration.privacy.release import default_weight, ffc_release

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DRAWS = 3
LATENT = 16


@dataclass(frozen=True, eq=False)
class Problem:
    name: str
    train: Floats
    labels: Labels
    test: Floats
    test_labels: Labels


@dataclass(frozen=True)
class Figure:
    """Accuracies for one problem at one ε, as means over draws of the noise."""

    problem: str
    epsilon: float
    exact: float
    shrinkage: float
    adassp: float
    mean_ridge: float


def unit(rows: Floats) -> Floats:
    scaled: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def extracted(rows: Floats, dim: int, seed: int) -> Floats:
    """Apply rectified random features: an extractor that needs no data."""
    weights = np.random.default_rng(seed).standard_normal((rows.shape[1], dim))
    return unit(np.maximum(unit(rows) @ weights, 0))


def digits() -> Iterator[Problem]:
    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    rows, labels = loaded.data[order], loaded.target[order].astype(np.int64)
    yield Problem("digits", unit(rows[360:]), labels[360:], unit(rows[:360]), labels[:360])
    for dim in (32, 128):
        features = extracted(rows, dim, 3)
        yield Problem(f"digits, {dim} random", features[360:], labels[360:], features[:360], labels[:360])


def clouds() -> Iterator[Problem]:
    for records, dim, classes, spread in (
        (1_000, 64, 10, 0.7),
        (5_000, 64, 10, 0.7),
        (5_000, 256, 20, 0.8),
        (50_000, 256, 20, 0.8),
        (50_000, 128, 40, 0.6),
    ):
        rng = np.random.default_rng(records + dim)
        centres, extractor = rng.standard_normal((classes, LATENT)), rng.standard_normal((LATENT, dim))
        labels = rng.integers(0, classes, records + 3_000)
        latent = centres[labels] + spread * rng.standard_normal((len(labels), LATENT))
        rows = unit(np.maximum(latent @ extractor, 0))
        yield Problem(
            f"clouds, {records}×{dim}", rows[:records], labels[:records], rows[records:], labels[records:]
        )


def images(folder: Path) -> Iterator[Problem]:
    for name in ("mnist", "fashion_mnist"):
        with np.load(folder / f"{name}.npz") as file:
            train, test = (file[key].reshape(len(file[key]), -1) + 1e-3 for key in ("x_train", "x_test"))
            labels, test_labels = file["y_train"].astype(np.int64), file["y_test"].astype(np.int64)
        for records, dim in ((1_000, 64), (4_000, 128), (10_000, 64), (10_000, 256), (60_000, 256)):
            yield Problem(
                f"{name}, {records}×{dim}",
                extracted(train[:records], dim, 5),
                labels[:records],
                extracted(test, dim, 5),
                test_labels,
            )


def measured(problem: Problem) -> Iterator[Figure]:
    records, dim = problem.train.shape
    classes = int(problem.labels.max()) + 1
    V, U = problem.train.T @ problem.train, problem.train.T @ np.eye(classes)[problem.labels]
    exact = np.linalg.solve(V + 1e-3 * records / dim * np.eye(dim), U)
    weight = default_weight(classes)
    for epsilon in EPSILONS:
        deviation = ffc_release(dim, classes).row_sensitivity / gdp_mu(epsilon, DELTA)
        hits: dict[str, list[float]] = {rule: [] for rule in RULES}
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            upper = np.triu(rng.standard_normal((dim, dim)) * deviation / math.sqrt(2), 1)
            noise = upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
            noisy_U = U + rng.standard_normal(U.shape) * deviation / weight
            for rule, solve in RULES.items():
                predicted = (problem.test @ solve(V + noise, noisy_U, deviation)).argmax(axis=1)
                hits[rule].append(float((predicted == problem.test_labels).mean()))
        yield Figure(
            problem.name,
            epsilon,
            float(((problem.test @ exact).argmax(axis=1) == problem.test_labels).mean()),
            **{rule: float(np.mean(rates)) for rule, rates in hits.items()},
        )


def shrinkage(V: Floats, U: Floats, deviation: float) -> Floats:
    return solve_noisy(V, U, deviation).weights


def adassp(V: Floats, U: Floats, deviation: float) -> Floats:
    """Solve by AdaSSP (Wang 2018, algorithm 2), with the smallest eigenvalue read from V̂ instead of spending budget on it.

    λ = max(0, σ·√(l·ln(2l²/0.05)) − max(0, d_min)), with the off-diagonal σ = σ_V/√2: the paper's noise has one deviation
    everywhere, and the off-diagonal elements determine the noise's norm.
    """
    dim, smallest = len(V), float(np.linalg.eigvalsh(V)[0])
    ridge = deviation * math.sqrt(dim * math.log(2 * dim**2 / 0.05) / 2)
    return ridged(V, U, max(0.0, ridge - max(0.0, smallest)))


def mean_ridge(V: Floats, U: Floats, deviation: float) -> Floats:
    """Solve with λ = tr V̂/l, which ignores the noise."""
    del deviation
    return ridged(V, U, float(np.trace(V)) / len(V))


def ridged(V: Floats, U: Floats, ridge: float) -> Floats:
    return np.asarray(np.linalg.lstsq(V + ridge * np.eye(len(V)), U)[0], np.float64)


RULES = {"shrinkage": shrinkage, "adassp": adassp, "mean_ridge": mean_ridge}


def means(figures: list[Figure]) -> Table:
    table = Table(title="mean accuracy", title_justify="left")
    for column in ("ε", "exact", *RULES):
        table.add_column(column)
    for epsilon in EPSILONS:
        rows = [figure for figure in figures if figure.epsilon == epsilon]
        columns = [[getattr(row, column) for row in rows] for column in ("exact", *RULES)]
        table.add_row(f"{epsilon:g}", *(f"{np.mean(column):.3f}" for column in columns))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/private_heads.json")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz and fashion_mnist.npz")
    given = parser.parse_args()
    problems = [*digits(), *clouds(), *(images(given.data) if given.data else ())]
    figures = [figure for problem in problems for figure in measured(problem)]
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(means(figures))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(
        json.dumps([asdict(figure) for figure in figures], indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
    console.print(f"written to {given.output}")


if __name__ == "__main__":
    main()
