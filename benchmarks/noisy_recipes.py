"""The accuracy that a noisy study's recipes cost, compared with the exact sum and with tuned gradient descent.

The steps are the product's, with Gaussian instead of discrete noise, all members in the sum and no more noise than needed. Recipes were
tuned on the problems that are not held out. `veilsum.calibration.privacy.plan` is fitted to these figures, and docs/privacy.md shows them.

    .venv/bin/python -m benchmarks.noisy_recipes --data FOLDER --problems FILE --output benchmarks/figures/noisy_recipes.json
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks.private_heads import DELTA
from benchmarks.secure_sum import ROOT
from veilsum.calibration import FFCStatistics, Head, solve_ffc
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.plan import RARE_HEADROOM, find_headroom
from veilsum.calibration.privacy.trial import clip_gradient, find_noisy_mean, noisy_head, try_recipe
from veilsum.calibration.rows import split_constant, unit_rows, with_constant
from veilsum.protocol.study import RECIPES

if TYPE_CHECKING:
    from benchmarks.noisy_problems import Problem

EPSILONS = (0.5, 1.0, 2.0, 4.0)
TABLE_RATIOS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)
DROWNING_EPSILONS, FEW_RECORDS = (0.05, 0.1, 0.2), 5_000
"""Noise that drowns the signal, for what a plan says of hopeless studies: of problems with few records."""
DRAWS = 2
TUNED_STEPS, TUNED_RATES = 30, (4.0, 16.0, 64.0, 256.0)
TRIED, TRIAL_OF, TRIAL_ROWS = (0.5, 2.0), 5_000, 2_000
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Score:
    """Accuracy and balanced accuracy (the mean of the recalls) in %, means over draws of the noise."""

    accuracy: float
    balanced: float


@dataclass(frozen=True)
class Figure:
    """One problem at one ε.

    Attributes:
        largest: share of the fitted records' largest class.
        majority: accuracy in % of always answering the class that is most frequent among the test records.
        exact: of the ridge head without noise.
        recipes: by name.
        tuned: of centred noisy gradient descent, with the rate chosen on the test records; None if not measured.
        trial: points lost by each recipe, estimated by a trial on 2,000 of the records; None for fewer than 5,000 records.
    """

    problem: str
    kind: str
    held_out: bool
    records: int
    dim: int
    classes: int
    epsilon: float
    largest: float
    majority: float
    exact: Score
    recipes: Mapping[str, Score]
    tuned: Score | None
    trial: Mapping[str, float] | None

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> "Figure":
        return cls(
            **{
                **row,
                "exact": Score(**row["exact"]),
                "recipes": {name: Score(**each) for name, each in row["recipes"].items()},
                "tuned": None if row["tuned"] is None else Score(**row["tuned"]),
            }
        )

    @property
    def data(self) -> str:
        """The data set."""
        return self.problem.partition(" of ")[0].partition(",")[0]

    @property
    def ratio(self) -> float:
        """N·μ/(l·C), of the records outside the largest class, as a plan counts it."""
        mu = gdp_mu(self.epsilon, DELTA)
        return self.records * mu / ((self.dim + 1) * self.classes) * find_headroom(self.largest, self.classes)

    def lost(self, recipe: str) -> float:
        """Return the points of accuracy that a recipe loses against the exact sum."""
        return self.exact.accuracy - self.recipes[recipe].accuracy


def judge(problem: "Problem", heads: Sequence[Head]) -> Score:
    truth, rows = problem.test_labels, problem.test.astype(np.float64)
    labels, scores = np.unique(truth), []
    for head in heads:
        hits = head.predict(rows, normalise=True) == truth
        scores.append((hits.mean(), np.mean([hits[truth == label].mean() for label in labels])))
    accuracy, balanced = np.mean(scores, axis=0)
    return Score(round(100 * float(accuracy), 2), round(100 * float(balanced), 2))


def descend(problem: "Problem", mu: float, rng: np.random.Generator, rate: float) -> Head:
    """Descend from zero on centred rows, as the literature does: a twentieth of μ² for the mean, the rest for the gradients."""
    rows, dim = problem.train.astype(np.float64), problem.train.shape[1]
    centre = find_noisy_mean(rows, mu * math.sqrt(0.05), rng)
    rows = with_constant(unit_rows(rows - centre, total=True)[0])
    own, weights = mu * math.sqrt(0.95 / TUNED_STEPS), np.zeros((dim + 1, problem.classes))
    for _ in range(TUNED_STEPS):
        noise = rng.standard_normal(weights.shape) / own
        weights -= rate / len(rows) * (clip_gradient(rows, problem.labels, weights) + noise)
    return Head(*split_constant(weights), (), centre=centre)


def tune_descent(problem: "Problem", mu: float) -> Score:
    """Return the best score over all rates."""
    scores = [
        judge(problem, [descend(problem, mu, np.random.default_rng(draw), rate) for draw in range(DRAWS)])
        for rate in TUNED_RATES
    ]
    return max(scores, key=lambda score: score.accuracy)


def measure(problem: "Problem") -> Iterator[Figure]:
    rows, labels, classes = problem.train.astype(np.float64), problem.labels, problem.classes
    statistics = FFCStatistics(rows.shape[1], classes, constant=True)
    statistics.update(rows, labels)
    exact, largest = judge(problem, [solve_ffc(statistics)]), float(np.bincount(labels).max() / len(labels))
    part = np.random.default_rng(9).permutation(len(rows))[:TRIAL_ROWS]
    for epsilon in (*(DROWNING_EPSILONS if len(rows) <= FEW_RECORDS else ()), *EPSILONS):
        mu, is_shown = gdp_mu(epsilon, DELTA), problem.held_out and epsilon in EPSILONS
        scores = {
            recipe: judge(
                problem,
                [
                    noisy_head(rows, labels, classes, dict(shares), mu, np.random.default_rng(draw))
                    for draw in range(DRAWS)
                ],
            )
            for recipe, shares in RECIPES.items()
        }
        tried = None
        if epsilon in TRIED and len(rows) >= TRIAL_OF:
            more = mu * len(rows) / TRIAL_ROWS
            tried = {
                recipe: round(
                    try_recipe(rows[part], labels[part], classes, dict(shares), more, draws=2).lost, 1
                )
                for recipe, shares in RECIPES.items()
            }
        yield Figure(
            problem.name, problem.kind, problem.held_out, len(rows), rows.shape[1], classes, epsilon, round(largest, 4),
            round(problem.majority, 2), exact, scores, tune_descent(problem, mu) if is_shown else None, tried,
        )  # fmt: skip


def page(figures: Sequence[Figure]) -> list[str]:
    """Return the rows of the table in docs/privacy.md: held-out problems, each at all values of ε."""
    rows = []
    held_out = [figure for figure in figures if figure.held_out and figure.epsilon in EPSILONS]
    for name, kind in dict.fromkeys((figure.problem, figure.kind) for figure in held_out):
        own = [figure for figure in held_out if (figure.problem, figure.kind) == (name, kind)]
        columns = [
            "/".join(f"{figure.recipes[recipe].accuracy:.1f}" for figure in own)
            for recipe in ("mean+sum", "mean+sum+6-gradients", "mean+sum+16-gradients")
        ]
        tuned = "/".join(f"{figure.tuned.accuracy:.1f}" for figure in own if figure.tuned is not None)
        first = own[0]
        rows.append(
            f"| {name}, {first.records:,}×{first.dim} | {kind} | {first.majority:.1f} | {first.exact.accuracy:.1f} | "
            f"{' | '.join(columns)} | {tuned} |"
        )
    return rows


def losses(figures: Sequence[Figure], recipe: str) -> tuple[tuple[float, float, float, float], ...]:
    """Return a recipe's table for `veilsum.calibration.privacy.plan`: points lost, over the headroom above the majority.

    Where other classes are rare, the exact head answers little but the largest one, so that nothing can be lost: these figures are left out.
    """
    headrooms = [find_headroom(each.largest, each.classes) for each in figures]
    found = [
        (each.ratio, each.lost(recipe) / headroom)
        for each, headroom in zip(figures, headrooms, strict=True)
        if headroom >= RARE_HEADROOM
    ]
    rows = list[tuple[float, float, float, float]]()
    for low, high in pairwise((*TABLE_RATIOS, math.inf)):
        median = float(np.median([lost for ratio, lost in found if low <= ratio < high]))
        median = min(median, rows[-1][1] if rows else math.inf)  # a larger ratio loses no more
        least = min(lost for ratio, lost in found if ratio < high)
        most = max(lost for ratio, lost in found if ratio >= low)
        rows.append((low, round(median, 1) + 0.0, round(least, 1) + 0.0, round(most, 1) + 0.0))
    return tuple(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/noisy_recipes.json")
    parser.add_argument("--data", type=Path, required=True, help="a folder with the pictures and sounds")
    parser.add_argument(
        "--problems", type=Path, required=True, help="all problems, made if the file is missing"
    )
    given = parser.parse_args()
    from benchmarks.noisy_problems import load_problems  # noqa: PLC0415 - imports torch

    rows = []
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for problem in load_problems(given.data, given.problems):
        for figure in measure(problem):
            rows.append(asdict(figure))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
        given.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
