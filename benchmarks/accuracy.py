"""Check whether a masked round changes the classifier: each promise about W and about bytes is measured and judged.

Ten members hold clustered unit features of the papers' size (l = 1280, 100 classes). Their FFC statistics go
go through a real masked round, from key cards to the unmasked total. The head solved from it is compared with
float64 ridge regression on all members' pooled features, at the same λ. If a promise fails,
the exit status is 1.

    .venv/bin/python -m benchmarks.accuracy --output runs/accuracy.json
"""

import argparse
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.metered_round import CLASSES, DIM, Case, Encode, Round, study_of
from benchmarks.reports import write_findings
from benchmarks.secure_sum import ROOT
from veilsum.calibration import FFCStatistics, Solution, solve_ffc
from veilsum.calibration.checks import check_sums
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.ridge import smallest_ridge, weights_error_bound
from veilsum.protocol.study import Content

MEMBERS = 10
MEMBER_ROWS = 2_000
TEST_ROWS = 5_000
# Rectified random features of a latent space so small that V is almost singular (its smallest eigenvalue is about
# 1e-6 of its largest). Rounding errors are largest there. The spread leaves many test rows near a decision boundary.
LATENT = 16
SPREAD = 0.9

Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Claim:
    """A promise, its measured value and its limit."""

    round: str
    promise: str
    measured: float
    limit: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


class Data:
    """Ten members' rows and the test rows, clustered on the sphere, in float32 as from an extractor."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        centres = rng.standard_normal((CLASSES, LATENT))
        extractor = rng.standard_normal((LATENT, DIM))

        def draw(rows: int) -> tuple[Features, Labels]:
            labels = rng.integers(0, CLASSES, rows)
            features = np.maximum(
                (centres[labels] + SPREAD * rng.standard_normal((rows, LATENT))) @ extractor, 0
            )
            features /= np.linalg.norm(features, axis=1, keepdims=True)
            return features.astype(np.float32), labels

        self.members = [draw(MEMBER_ROWS) for _ in range(MEMBERS)]
        self.test = draw(TEST_ROWS)

    def ridge_weights(self, ridge: float) -> Floats:
        """Fit float64 ridge regression on all pooled rows, without our code; return (DIM, CLASSES)."""
        rows = np.concatenate([features for features, _ in self.members]).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        targets = np.eye(CLASSES)[np.concatenate([labels for _, labels in self.members])]
        weights: Floats = np.linalg.solve(rows.T @ rows + ridge * np.eye(DIM), rows.T @ targets)
        return weights

    def statistics(self) -> list[FFCStatistics]:
        """Return each member's statistics."""
        made = []
        for features, labels in self.members:
            statistics = FFCStatistics(DIM, CLASSES)
            statistics.update(features, labels)
            made.append(statistics)
        return made


@dataclass(frozen=True)
class Pooled:
    """The result of a masked round, and the bytes that a member uploaded."""

    statistics: FFCStatistics
    upload_bytes: int


def masked_round(statistics: list[FFCStatistics], content: Content) -> Pooled:
    """Sum the members' statistics in a round; `Round.run` checks its total against the plain sum."""
    layout, lattice = statistics[0].layout, SumsLattice(content.question.scale)

    def own(number: int) -> Encode:
        return lambda: statistics[number].vector(lattice)

    with tempfile.TemporaryDirectory(prefix="veilsum-accuracy-") as spool:
        round_ = Round(Case(MEMBERS, 0), content, own, Path(spool))
        round_.run(probe_memory=False)
    check_sums(layout, lattice, round_.total, members=MEMBERS, constant=False)
    pooled = statistics[0].from_sums(lattice, round_.total, members=MEMBERS)
    return Pooled(pooled, max(round_.upload_bytes.values()))


def off_by(solution: Solution, weights: Floats) -> float:
    """Return max|ΔW| / max|W|."""
    return float(np.abs(solution.weights - weights).max() / np.abs(weights).max())


def measure(seed: int) -> tuple[list[Claim], dict[str, float]]:
    """Return every claim, and figures without a promise."""
    data = Data(seed)
    test, labels = data.test
    members = data.statistics()
    in_the_clear = members[0] + members[1]
    for statistics in members[2:]:
        in_the_clear.merge(statistics)
    chosen = solve_ffc(in_the_clear).ridge  # λ by generalised cross-validation, on the plain sums
    studies = {bits: study_of(Case(MEMBERS, 0), bits) for bits in (48, 32)}
    fine, coarse = (studies[bits].question.scale for bits in (48, 32))
    promised = smallest_ridge(DIM, MEMBERS, fine)
    reference = {ridge: data.ridge_weights(ridge) for ridge in (promised, chosen)}
    predicted = (test.astype(np.float64) @ reference[chosen]).argmax(axis=1)
    reported = {
        "ridge_by_gcv": chosen,
        "ridge_promised": promised,
        "test_accuracy_float64": float(np.mean(predicted == labels)),
    }
    claims = []

    def judge(name: str, pooled: Pooled, solution: Solution) -> float:
        agreement = float(np.mean(solution.predict(test) == predicted))
        reported[f"{name}: weights off by, λ={chosen:.3g}"] = off_by(solution, reference[chosen])
        reported[f"{name}: same predictions"] = agreement
        reported[f"{name}: upload MB"] = pooled.upload_bytes / 1e6
        return agreement

    name = "sums, 48 bits"
    pooled = masked_round(members, studies[48])
    for ridge, weights in reference.items():
        error = off_by(solve_ffc(pooled.statistics, ridge), weights)
        claims.append(Claim(name, f"W within 1e-6 of float64 ridge, λ = {ridge:.3g}", error, 1e-6))
    free = solve_ffc(pooled.statistics)
    judge(name, pooled, free)
    claims += [
        Claim(name, "steps of 2^-31", fine, 31, at_least=True),
        Claim(name, "cross-validation chooses the same λ: |Δλ|", abs(free.ridge - chosen), 0),
        Claim(name, "MB of an upload", pooled.upload_bytes / 1e6, 5.8),
    ]

    name = "sums, 32 bits"
    pooled = masked_round(members, studies[32])
    solution = solve_ffc(pooled.statistics, chosen)
    agreement = judge(name, pooled, solution)
    bound = weights_error_bound(
        solution.raw_weights,
        chosen,
        members=MEMBERS,
        scale_bits=coarse,
        smallest_eigenvalue=solution.smallest_eigenvalue,
    )
    error = float(np.abs(solution.weights - reference[chosen]).max())
    claims += [
        Claim(name, "steps of 2^-15", coarse, 15, at_least=True),
        Claim(name, "test rows with the same prediction", agreement, 0.999, at_least=True),
        Claim(name, "max|ΔW| against the bound that the result states", error, bound),
        Claim(name, "MB of an upload", pooled.upload_bytes / 1e6, 3.9),
    ]
    return claims, reported


def claims_table(claims: list[Claim]) -> Table:
    table = Table(title=f"{MEMBERS} members × {MEMBER_ROWS:,} rows, l = {DIM}, {CLASSES} classes, masked")
    for column in ("round", "promise", "measured", "limit", ""):
        table.add_column(column)
    for claim in claims:
        limit = f"{'≥' if claim.at_least else '≤'} {claim.limit:.4g}"
        verdict = "pass" if claim.kept else "[bold red]FAIL"
        table.add_row(claim.round, claim.promise, f"{claim.measured:.4g}", limit, verdict)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/accuracy.json")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    claims, reported = measure(given.seed)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(claims_table(claims))
    for name, figure in reported.items():
        console.print(f"{name}: {figure:.6g}", highlight=False)
    written = {
        "seed": given.seed,
        "claims": [{**asdict(claim), "kept": claim.kept} for claim in claims],
        "reported": reported,
    }
    write_findings(written, given.output)
    if not all(claim.kept for claim in claims):
        sys.exit("accuracy: a promise is not kept")


if __name__ == "__main__":
    main()
