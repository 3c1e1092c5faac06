"""The accuracy that a noisy study's recipes cost, compared with the exact sum, an earlier chain and tuned gradient descent.

Features are of three kinds: rectified random projections, pixels projected on their principal components, and a small network trained on
TinyImageNet (`benchmarks.trained_features` writes its files). The recipe was chosen on digits, clouds and Fashion-MNIST; the held-out
problems were not used for the choice. Rows, noise and steps are the product's, in float32, with Gaussian instead of discrete noise.
`veilsum.calibration.privacy.plan` is fitted to these figures, and docs/privacy.md shows them.

    .venv/bin/python -m benchmarks.noisy_recipes --data FOLDER --features FOLDER --output benchmarks/figures/noisy_recipes.json
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from benchmarks.private_heads import DELTA, extracted, unit
from benchmarks.secure_sum import ROOT
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.integer_sums import RESIDUAL_CLIP
from veilsum.calibration.privacy.noisy_sums import Descent, NoisyGradient, NoisySums
from veilsum.calibration.privacy.plan import TABLE_RATIOS
from veilsum.calibration.privacy.release import default_weight
from veilsum.calibration.privacy.trial import points_lost
from veilsum.protocol.study import RECIPES

Floats = npt.NDArray[Any]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
COMPARED = 2.0
"""The earlier chain and tuned descent are measured up to this ε."""
TEST, LARGE = 5_000, 20_000
RATES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TRIED, TRIAL_OF, TRIAL_ROWS = (0.5, 2.0), 8_000, 2_000
COLUMNS = {"sum": "sum", "mean+sum": "mean_sum", "mean+sum+gradients": "gradients"}
"""Field of `Figure` for each recipe."""
STEPS = len(RECIPES["mean+sum+gradients"]) - 2


@dataclass(frozen=True, eq=False)
class Problem:
    name: str
    kind: str
    held_out: bool
    train: Floats
    labels: npt.NDArray[np.int64]
    test: Floats
    test_labels: npt.NDArray[np.int64]

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


@dataclass(frozen=True)
class Figure:
    """One problem at one ε. Accuracies in %, means over draws of the noise; None if not measured.

    Attributes:
        exact: of the ridge head without noise, on unchanged features.
        apart: share of tr V outside the direction of the mean.
        effective: (Σλ)²/Σλ² of the centred rows' second moment.
        sum, mean_sum, gradients: of the recipes.
        refinement: of the shares mean 0.1, V and U 0.45, and four steps of 2·V⁻¹G.
        tuned: of centred noisy gradient descent, with rate and clipping chosen on the test records.
        trial: points lost by the three recipes, estimated by a trial on 2,000 of the records; None for fewer than 8,000 records.
    """

    problem: str
    kind: str
    held_out: bool
    records: int
    dim: int
    classes: int
    epsilon: float
    apart: float
    effective: float
    exact: float
    sum: float
    mean_sum: float
    gradients: float
    refinement: float | None
    tuned: float | None
    trial: tuple[float, float, float] | None

    @property
    def data(self) -> str:
        """The data set."""
        return self.problem.partition(",")[0]


def problems(data: Path, features: Path) -> Iterator[Problem]:
    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    rows, labels = loaded.data[order], loaded.target[order].astype(np.int64)
    yield Problem(
        "digits, 1437×64", "pixels", False, unit(rows[360:]), labels[360:], unit(rows[:360]), labels[:360]
    )
    for name, held_out, sizes in (
        ("fashion_mnist", False, (3_000, 10_000, 30_000)),
        ("mnist", True, (3_000, 10_000, 30_000)),
    ):
        with np.load(data / f"{name}.npz") as file:
            train, test = (file[key].reshape(len(file[key]), -1) + 1e-3 for key in ("x_train", "x_test"))
            labels, truth = file["y_train"].astype(np.int64), file["y_test"].astype(np.int64)
        order = np.random.default_rng(1).permutation(len(train))
        test, truth = test[:TEST], truth[:TEST]
        mean = train[order[-5_000:]].mean(axis=0)
        components = np.linalg.svd(train[order[-5_000:]] - mean, full_matrices=False)[2][:128].T
        for kind in ("random", "pixels"):
            for records in sizes[: 3 if kind == "random" else 2]:
                part = order[:records]
                own, judged = (
                    extracted(each, 256, 5) if kind == "random" else unit((each - mean) @ components)
                    for each in (train[part], test)
                )
                yield Problem(
                    f"{name}, {records}×{own.shape[1]} {kind}",
                    kind,
                    held_out,
                    own,
                    labels[part],
                    judged,
                    truth,
                )
    for name, held_out, counts in (
        ("fashion_mnist", False, [10_000, 30_000]),
        ("mnist", True, [10_000]),
        ("cifar10", True, [10_000, 30_000]),
        ("pacs", True, [8_871]),
        ("fsdd", True, [2_700]),
    ):
        with np.load(features / f"{name}.npz") as file:
            rows, labels, test, truth = (file[key] for key in ("rows", "labels", "test", "test_labels"))
        order = np.random.default_rng(1).permutation(len(rows))
        test, truth = unit(test[:TEST]), truth[:TEST]
        for records in counts:
            part = order[:records]
            own = unit(rows[part])
            yield Problem(
                f"{name}, {len(own)}×{own.shape[1]} trained",
                "trained",
                held_out,
                own,
                labels[part],
                test,
                truth,
            )


def accuracy(problem: Problem, rows: Floats, weights: Floats) -> float:
    return 100 * float(((rows @ weights.astype(rows.dtype)).argmax(axis=1) == problem.test_labels).mean())


def centred(problem: Problem, mu: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    sums = problem.train.sum(axis=0) * math.sqrt(0.5) + rng.standard_normal(problem.train.shape[1]) / mu
    mean = sums / (len(problem.train) * math.sqrt(0.5) + rng.standard_normal() / mu)
    mean /= max(1.0, float(np.linalg.norm(mean)))
    return single(problem.train - mean), single(problem.test - mean)


def single(rows: Floats) -> Floats:
    return unit(rows).astype(np.float32)


def summed(problem: Problem, rows: Floats, mu: float, rng: np.random.Generator) -> NoisySums:
    dim, classes, weight = rows.shape[1], problem.classes, default_weight(problem.classes)
    deviation = math.sqrt(1 + weight**2) / mu
    upper = np.triu(rng.standard_normal((dim, dim)) * deviation / math.sqrt(2), 1)
    V = (rows.T @ rows).astype(np.float64) + upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    one_hot = np.eye(classes, dtype=rows.dtype)[problem.labels]
    U = (rows.T @ one_hot).astype(np.float64) + rng.standard_normal((dim, classes)) * deviation / weight
    return NoisySums(V, U, deviation, deviation / weight, False, None)


def gradient(problem: Problem, rows: Floats, weights: Floats, clip: float) -> Floats:
    """Return Σ x·ρᵀ, ‖ρ‖ ≤ 1."""
    scores = rows @ weights.astype(rows.dtype)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(rows)), problem.labels] -= 1
    scores /= np.maximum(np.linalg.norm(scores, axis=1, keepdims=True), clip)
    gradient: Floats = (rows.T @ scores).astype(np.float64)
    return gradient


def one_sum(problem: Problem, mu: float, rng: np.random.Generator) -> float:
    return accuracy(problem, problem.test, summed(problem, problem.train, mu, rng).solution.weights)


def mean_and_sum(problem: Problem, mu: float, rng: np.random.Generator) -> float:
    rows, test = centred(problem, mu * math.sqrt(0.1), rng)
    return accuracy(problem, test, summed(problem, rows, mu * math.sqrt(0.9), rng).solution.weights)


def gradients(problem: Problem, mu: float, rng: np.random.Generator) -> float:
    shares = [math.sqrt(share) * mu for _, share in RECIPES["mean+sum+gradients"]]
    rows, test = centred(problem, shares[0], rng)
    descent = Descent.from_sums(summed(problem, rows, shares[1], rng))
    rows = single(rows @ descent.whitening)
    for step, own in enumerate(shares[2:], 1):
        noise = rng.standard_normal(descent.weights.shape) / own
        found = NoisyGradient(gradient(problem, rows, descent.weights, RESIDUAL_CLIP) + noise, 1 / own)
        descent = descent.take_step(found, step, STEPS)
    return accuracy(problem, test, descent.make_head(constant=False).weights)


def refinement(problem: Problem, mu: float, rng: np.random.Generator) -> float:
    rows, test = centred(problem, mu * math.sqrt(0.1), rng)
    solution = summed(problem, rows, mu * math.sqrt(0.45), rng).solution
    vectors, own = solution.spectrum.vectors, mu * math.sqrt(0.1125)
    weights = solution.weights * math.log(9 * max(1, problem.classes - 1))
    for _ in range(4):
        found = gradient(problem, rows, weights, 1.0) + rng.standard_normal(weights.shape) / own
        weights = weights - 2 * vectors @ (vectors.T @ found / solution.eigenvalues[:, None])
    return accuracy(problem, test, weights)


def tuned(problem: Problem, mu: float, draws: range) -> float:
    """Return the best mean accuracy over the draws, of all rates and clippings."""

    def mean(clip: float, rate: float) -> float:
        rngs = [np.random.default_rng(seed) for seed in draws]
        return float(np.mean([descended(problem, mu, rng, clip, rate) for rng in rngs]))

    return max(mean(clip, rate) for clip in (1.0, RESIDUAL_CLIP) for rate in RATES)


def descended(problem: Problem, mu: float, rng: np.random.Generator, clip: float, rate: float) -> float:
    rows, test = centred(problem, mu * math.sqrt(0.05), rng)
    own, weights = mu * math.sqrt(0.95 / STEPS), np.zeros((rows.shape[1], problem.classes))
    for _ in range(STEPS):
        noise = rng.standard_normal(weights.shape) / own
        weights -= rate / len(rows) * (gradient(problem, rows, weights, clip) + noise)
    return accuracy(problem, test, weights)


def trial(problem: Problem, mu: float) -> tuple[float, float, float]:
    """Return the losses that a trial on 2,000 of the records would report to a member."""
    part = np.random.default_rng(9).permutation(len(problem.train))[:TRIAL_ROWS]
    rows, labels, more = (
        problem.train[part].astype(np.float64),
        problem.labels[part],
        len(problem.train) / TRIAL_ROWS,
    )
    first, second, third = (
        round(points_lost(rows, labels, problem.classes, dict(RECIPES[recipe]), mu * more, draws=2), 1)
        for recipe in COLUMNS
    )
    return first, second, third


def measured(problem: Problem) -> Iterator[Figure]:
    records, dim = problem.train.shape
    V, U = problem.train.T @ problem.train, problem.train.T @ np.eye(problem.classes)[problem.labels]
    exact = accuracy(problem, problem.test, np.linalg.solve(V + 1e-3 * records / dim * np.eye(dim), U))
    mean = problem.train.mean(axis=0)
    rows = unit(problem.train - mean)
    spectrum = np.linalg.eigvalsh(rows.T @ rows)
    effective = float(spectrum.sum() ** 2 / (spectrum**2).sum())
    draws = range(2 if records <= LARGE else 1)

    def over(recipe: Callable[[Problem, float, np.random.Generator], float], mu: float) -> float:
        return float(np.mean([recipe(problem, mu, np.random.default_rng(seed)) for seed in draws]))

    for epsilon in EPSILONS:
        mu, compared = gdp_mu(epsilon, DELTA), epsilon <= COMPARED and problem.held_out
        yield Figure(
            problem.name, problem.kind, problem.held_out, records, dim, problem.classes, epsilon,
            1 - float(mean @ mean), effective, exact,
            over(one_sum, mu), over(mean_and_sum, mu), over(gradients, mu),
            over(refinement, mu) if epsilon <= COMPARED else None,
            tuned(problem, mu, draws) if compared else None,
            trial(problem, mu) if epsilon in TRIED and records >= TRIAL_OF else None,
        )  # fmt: skip


def page(figures: list[Figure]) -> list[str]:
    """Return the rows of the table in docs/privacy.md: held-out problems, each at three values of ε."""
    rows = []
    for name in dict.fromkeys(figure.problem for figure in figures if figure.held_out):
        own = [figure for figure in figures if figure.problem == name and figure.epsilon <= COMPARED]
        columns = [
            [getattr(each, column) for each in own]
            for column in ("mean_sum", "refinement", "gradients", "tuned")
        ]
        shown = " | ".join(
            "/".join("–" if value is None else f"{value:.1f}" for value in column) for column in columns
        )
        rows.append(f"| {name} | {own[0].exact:.1f} | {shown} |")
    return rows


def losses(figures: list[Figure], recipe: str) -> tuple[tuple[float, float, float, float], ...]:
    """Return a recipe's table for `veilsum.calibration.privacy.plan`."""
    found = [
        (
            each.records * gdp_mu(each.epsilon, DELTA) / (each.dim * each.classes),
            each.exact - float(getattr(each, COLUMNS[recipe])),
        )
        for each in figures
    ]
    rows = []
    for low, high in pairwise((*TABLE_RATIOS, math.inf)):
        median = float(np.median([lost for ratio, lost in found if low <= ratio < high]))
        least = min(lost for ratio, lost in found if ratio < high)
        most = max(lost for ratio, lost in found if ratio >= low)
        rows.append((low, round(median, 1) + 0.0, round(least, 1) + 0.0, round(most, 1) + 0.0))
    return tuple(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/noisy_recipes.json")
    parser.add_argument(
        "--data", type=Path, required=True, help="a folder with mnist.npz and fashion_mnist.npz"
    )
    parser.add_argument("--features", type=Path, required=True, help="what benchmarks.trained_features wrote")
    given = parser.parse_args()
    rows = []
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for problem in problems(given.data, given.features):
        for figure in measured(problem):
            rows.append(asdict(figure))
            print(
                *(f"{each:.4g}" if isinstance(each, float) else each for each in rows[-1].values()),
                flush=True,
            )
            given.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
