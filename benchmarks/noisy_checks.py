"""Check the plan's interval in settings to which it was not fitted: other data, sizes, dimensions, classes and draws.

Uses three kinds of features, as `benchmarks.noisy_recipes`, and its functions.

    .venv/bin/python -m benchmarks.noisy_checks --data FOLDER --features FOLDER --output benchmarks/figures/noisy_checks.json
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.noisy_recipes import TEST, Floats, Problem, accuracy, gradients, mean_and_sum, one_sum
from benchmarks.private_heads import DELTA, extracted, unit
from benchmarks.secure_sum import ROOT
from benchmarks.trained_features import images
from veilsum.calibration.privacy.accountant import gdp_mu

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEED = 20
Labels = npt.NDArray[np.int64]
PROJECTED = (  # data set, kind, records, dimensions, classes
    ("cifar10", "pixels", 10_000, 128, 10),
    ("pacs", "pixels", 8_000, 64, 7),
    ("fsdd", "pixels", 2_700, 128, 10),
    ("tinyimagenet", "pixels", 10_000, 128, 20),
    ("tinyimagenet", "pixels", 50_000, 64, 100),
    ("cifar10", "random", 20_000, 128, 10),
    ("pacs", "random", 8_000, 128, 7),
    ("fsdd", "random", 2_700, 64, 10),
    ("mnist", "random", 20_000, 512, 10),
)
TRAINED = (  # data set, records
    ("mnist", 30_000),
    ("fashion_mnist", 5_000),
    ("cifar10", 5_000),
    ("pacs", 4_000),
)


@dataclass(frozen=True)
class Check:
    """Accuracies in % for one draw of the noise."""

    problem: str
    kind: str
    records: int
    dim: int
    classes: int
    epsilon: float
    exact: float
    sum: float
    mean_sum: float
    gradients: float


def pictures(data: Path, name: str) -> tuple[Floats, Labels, Floats, Labels]:
    """Return shuffled training images and labels, and test images and labels."""
    found: tuple[Floats, Labels, Floats, Labels]
    if name == "cifar10":
        path = data / "cifar10_jpegpack.npz"
        found = (*images(path, "train"), *images(path, "test"))
    elif name == "tinyimagenet":
        path = data / "tinyimagenet100_jpegpack.npz"
        (rows, labels), (test, truth) = images(path, "train"), images(path, "test")
        found = (smaller(rows), labels, smaller(test), truth)
    else:
        with np.load(data / f"{ {'pacs': 'pacs32', 'fsdd': 'fsdd_logmel32'}.get(name, name) }.npz") as file:
            if name == "mnist":
                found = (file["x_train"], file["y_train"], file["x_test"], file["y_test"])
            else:
                held = file["is_test"].astype(bool) if name == "pacs" else file["index"] <= 4
                found = (file["x"][~held], file["y"][~held], file["x"][held], file["y"][held])
    return shuffled(*found)


def smaller(pictures: Floats) -> Floats:
    """Reduce 64 px images to the means of 4 × 4 px."""
    small: Floats = pictures.reshape(len(pictures), 16, 4, 16, 4, 3).mean(axis=(2, 4), dtype=np.float32)
    return small


def shuffled(
    rows: Floats, labels: Labels, test: Floats, truth: Labels
) -> tuple[Floats, Labels, Floats, Labels]:
    rng = np.random.default_rng(SEED)
    own, judged = rng.permutation(len(rows)), rng.permutation(len(test))
    return rows[own], labels[own].astype(np.int64), test[judged], truth[judged].astype(np.int64)


def problems(data: Path, features: Path) -> Iterator[Problem]:
    for name, kind, records, dim, classes in PROJECTED:
        rows, labels, test, truth = pictures(data, name)
        rows, test = (each.reshape(len(each), -1) for each in (rows[labels < classes], test[truth < classes]))
        labels, truth = labels[labels < classes][:records], truth[truth < classes][:TEST]
        part, judged = rows[:records] + 1e-3, test[:TEST] + 1e-3
        if kind == "pixels":
            sample = rows[-4_000:] + 1e-3
            mean = sample.mean(axis=0)
            vectors = np.linalg.eigh((sample - mean).T @ (sample - mean))[1][:, -dim:]
            own, seen = (unit((each - mean) @ vectors) for each in (part, judged))
        else:
            own, seen = (extracted(each, dim, SEED) for each in (part, judged))
        yield Problem(f"{name}, {len(own)}×{dim} {kind}", kind, True, own, labels, seen, truth)
    for name, records in TRAINED:
        with np.load(features / f"{name}.npz") as file:
            rows, labels, test, truth = shuffled(
                *(file[key] for key in ("rows", "labels", "test", "test_labels"))
            )
        own, seen = unit(rows[:records]), unit(test[:TEST])
        title = f"{name}, {records}×{own.shape[1]} trained"
        yield Problem(title, "trained", True, own, labels[:records], seen, truth[:TEST])


def checked(problem: Problem) -> Iterator[Check]:
    records, dim = problem.train.shape
    V, U = problem.train.T @ problem.train, problem.train.T @ np.eye(problem.classes)[problem.labels]
    exact = accuracy(problem, problem.test, np.linalg.solve(V + 1e-3 * records / dim * np.eye(dim), U))
    for epsilon in EPSILONS:
        mu = gdp_mu(epsilon, DELTA)
        one, two, three = (
            recipe(problem, mu, np.random.default_rng(SEED)) for recipe in (one_sum, mean_and_sum, gradients)
        )
        yield Check(
            problem.name, problem.kind, records, dim, problem.classes, epsilon, exact, one, two, three
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/noisy_checks.json")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True, help="what benchmarks.trained_features wrote")
    given = parser.parse_args()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for problem in problems(given.data, given.features):
        for check in checked(problem):
            rows.append(asdict(check))
            print(*rows[-1].values(), flush=True)
        given.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
