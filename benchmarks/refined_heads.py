"""What rounds of gradients add to a noisy head at one budget: accuracy over problems × ε × rounds, centred and not.

The problems are those of `benchmarks.private_heads` up to 10,000 records, and MNIST and Fashion-MNIST whole. Half of μ² goes to
(V, U), the other half to the rounds alike; where features are centred, a tenth of all goes to the mean first. Heads and gradients are
the code that rounds run; Gaussian noise stands in for the discrete one, which at its grid nothing here can tell apart. The table of
`veilsum.calibration.privacy.plan` is the last that this prints, and docs/privacy.md has some rows of the first.

    .venv/bin/python -m benchmarks.refined_heads --data FOLDER --output benchmarks/figures/refined_heads.json
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

from benchmarks.private_heads import DELTA, Problem, clouds, digits, images, unit
from benchmarks.secure_sum import ROOT
from veilsum.calibration import FeaturesLattice, Head
from veilsum.calibration.logistic import logistic_start, stepped
from veilsum.calibration.privacy import (
    GradientSums,
    default_weight,
    ffc_release,
    gdp_mu,
    gradient_release,
    noise_edge,
    solve_noisy,
)

Floats = npt.NDArray[np.float64]

EPSILONS = (1.0, 2.0, 4.0, 8.0)
ROUNDS = (0, 2, 4, 8)
CENTRED_ROUNDS = (0, 4)
DRAWS, LARGE = 3, 20_000
MEAN_SHARE = 0.1
SHOWN = {
    "digits": "digits, 64 pixels",
    "digits, 128 random": "digits, 128 random features",
    "fashion_mnist, 10000×256": "Fashion-MNIST, 10,000 × 256",
    "fashion_mnist, 60000×256": "Fashion-MNIST, 60,000 × 256",
}
"""Problems that docs/privacy.md has in its table."""


LATTICE = FeaturesLattice(12)


@dataclass(frozen=True)
class Figure:
    """One problem at one ε: the mean accuracy over draws of the noise.

    Attributes:
        rounds: of gradients after (V, U); 0 for the head that all of the budget went to.
        exact: accuracy of the ridge head without noise.
        eigenvalue_ratio: N/(l·edge), of a head that all of the budget goes to.
        class_ratio: (N/C)/(σ_U·√l), likewise.
    """

    problem: str
    records: int
    dim: int
    classes: int
    epsilon: float
    centred: bool
    rounds: int
    draws: int
    accuracy: float
    exact: float
    eigenvalue_ratio: float
    class_ratio: float


def released(problem: Problem, mu: float, rounds: int, rng: np.random.Generator) -> float:
    """The accuracy of a head from a noisy (V, U), refined in so many rounds at μ in all."""
    Z, labels, classes = problem.train, problem.labels, int(problem.labels.max()) + 1
    dim, weight = Z.shape[1], default_weight(classes)
    deviation = ffc_release(dim, classes).row_sensitivity / (mu * math.sqrt(0.5) if rounds else mu)
    upper = np.triu(rng.standard_normal((dim, dim)) * deviation / math.sqrt(2), 1)
    V = Z.T @ Z + upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    U = Z.T @ np.eye(classes)[labels] + rng.standard_normal((dim, classes)) * deviation / weight
    found = solve_noisy(V, U, deviation)
    head = Head(found.weights, None, ())
    if rounds:
        head = logistic_start(head)
    for _ in range(rounds):
        sums = GradientSums(gradient_release(dim, classes), head.weights, head.bias)
        sums.update(Z, labels)
        gradient = LATTICE.decode(sums.flat, 2).reshape(dim, classes)
        noise = rng.standard_normal((dim, classes)) * math.sqrt(rounds / 0.5) / mu
        head = stepped(head, gradient + noise, found.inverse)
    return float((head.predict(problem.test, normalise=True) == problem.test_labels).mean())


def centred(problem: Problem, mu: float, rng: np.random.Generator) -> Problem:
    """Its features less a noisy mean."""
    sums = problem.train.sum(axis=0) * math.sqrt(0.5) + rng.standard_normal(problem.train.shape[1]) / mu
    count = len(problem.train) * math.sqrt(0.5) + rng.standard_normal() / mu
    mean = sums / count
    mean /= max(1.0, float(np.linalg.norm(mean)))
    return Problem(
        problem.name,
        unit(problem.train - mean),
        problem.labels,
        unit(problem.test - mean),
        problem.test_labels,
    )


def measured(problem: Problem) -> Iterator[Figure]:
    records, dim = problem.train.shape
    classes, draws = int(problem.labels.max()) + 1, DRAWS if records <= LARGE else 1
    V, U = problem.train.T @ problem.train, problem.train.T @ np.eye(classes)[problem.labels]
    exact = np.linalg.solve(V + 1e-3 * records / dim * np.eye(dim), U)
    right = float(((problem.test @ exact).argmax(axis=1) == problem.test_labels).mean())
    weight = default_weight(classes)
    for epsilon in EPSILONS:
        mu = gdp_mu(epsilon, DELTA)
        deviation = ffc_release(dim, classes).row_sensitivity / mu
        ratios = (
            records / (dim * noise_edge(deviation, dim)),
            records / (classes * deviation / weight * math.sqrt(dim)),
        )
        for away, rounds in [(False, each) for each in ROUNDS] + [(True, each) for each in CENTRED_ROUNDS]:
            hits = []
            for seed in range(draws):
                rng = np.random.default_rng([seed, rounds, away])
                own, left = problem, mu
                if away:
                    own, left = (
                        centred(problem, mu * math.sqrt(MEAN_SHARE), rng),
                        mu * math.sqrt(1 - MEAN_SHARE),
                    )
                hits.append(released(own, left, rounds, rng))
            about = (problem.name, records, dim, classes, epsilon, away, rounds, draws)
            yield Figure(*about, float(np.mean(hits)), right, *ratios)


def accuracies(figures: list[Figure]) -> Table:
    table = Table(title="accuracy in %", title_justify="left")
    columns = [(False, each) for each in ROUNDS] + [(True, each) for each in CENTRED_ROUNDS]
    names = [f"{'centred, ' if away else ''}{rounds or 'no'} rounds" for away, rounds in columns]
    for column in ("problem", "ε", "exact", *names):
        table.add_column(column)
    for name in dict.fromkeys(figure.problem for figure in figures):
        for epsilon in EPSILONS:
            own = {(f.centred, f.rounds): f for f in figures if (f.problem, f.epsilon) == (name, epsilon)}
            exact = 100 * own[False, 0].exact
            table.add_row(
                name, f"{epsilon:g}", f"{exact:.1f}", *(f"{100 * own[c].accuracy:.1f}" for c in columns)
            )
    return table


def page(figures: list[Figure]) -> list[str]:
    """The rows of the table in docs/privacy.md."""
    columns = [(False, each) for each in ROUNDS] + [(True, each) for each in CENTRED_ROUNDS]
    rows = []
    for name, title in SHOWN.items():
        for epsilon in EPSILONS:
            own = {(f.centred, f.rounds): f for f in figures if (f.problem, f.epsilon) == (name, epsilon)}
            shown = [own[False, 0].exact, *(own[column].accuracy for column in columns)]
            rows.append(f"| {title} | {epsilon:g} | {' | '.join(f'{100 * each:.1f}' for each in shown)} |")
    return rows


def gains(figures: list[Figure], bounds: tuple[float, ...] = (0, 0.25, 0.5, 1, 2, 4, 8)) -> Table:
    """Points gained over no rounds, by N/(l·edge)."""
    table = Table(title="points gained, median and worst, by eigenvalue_ratio", title_justify="left")
    for column in ("from", "problems", *(f"{rounds} rounds" for rounds in ROUNDS[1:])):
        table.add_column(column)
    plain = [figure for figure in figures if not figure.centred]
    start = {(f.problem, f.epsilon): f.accuracy for f in plain if not f.rounds}
    for low, high in zip(bounds, (*bounds[1:], math.inf), strict=True):
        here = [f for f in plain if low <= f.eigenvalue_ratio < high]
        if not here:
            continue
        found = [
            [100 * (f.accuracy - start[f.problem, f.epsilon]) for f in here if f.rounds == rounds]
            for rounds in ROUNDS[1:]
        ]
        table.add_row(
            f"{low:g}", str(len(found[0])), *(f"{np.median(each):+.1f} {min(each):+.1f}" for each in found)
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/refined_heads.json")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz and fashion_mnist.npz")
    given = parser.parse_args()
    made = [p for p in clouds() if len(p.train) <= LARGE]
    problems = [*digits(), *made, *(images(given.data) if given.data else ())]
    figures: list[Figure] = []
    for problem in problems:
        figures += measured(problem)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(figure) for figure in figures]
        given.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(accuracies(figures), gains(figures), f"written to {given.output}")


if __name__ == "__main__":
    main()
