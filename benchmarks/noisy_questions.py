"""Every question under noise beside a noisy round of ffc at the same budget: the table of docs/privacy.md, "The other questions".

python -m benchmarks.noisy_questions
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from calibration import FeaturesLattice
from calibration.collected import Collected
from calibration.privacy import MemberNoise, NoiseTerms, gdp_mu
from calibration.questions import Answer, Earlier, Summed, Wish, ask, question
from calibration.reliability import ReliabilityStatistics
from calibration.rows import unit_rows
from protocol.keystream import Keystream

ROOT = Path(__file__).parents[1]
DIM, CLASSES, SEEDS = 64, 10, 3
EPSILONS = (1.0, 2.0, 4.0, 8.0)
LATTICE = FeaturesLattice(12)
SHARES = np.array([0.4, 0.2, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03, 0.02, 0.01])
CCVR: dict[str, Any] = {"unit": True, "norm_bound": 1.0, "per_class": 100, "tukey": True, "power": 0.5}

Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def asked(
    name: str, data: Data, mu: float, seed: int, earlier: Earlier | None = None, **given: Any
) -> Answer:
    """What follows from one noisy round over all records, with as much noise as μ takes and no more."""
    return rest(name, data, mu, seed, earlier, **given)[1]


def rest(
    name: str, data: Data, mu: float, seed: int, earlier: Earlier | None = None, **given: Any
) -> tuple[Earlier, Answer]:
    """The same, and the round as another one rests on it."""
    made = ask(name, Wish(DIM, CLASSES, given, noisy=True), earlier)
    posed, terms = (
        question(name, made.layout, b"c" * 32, made.material),
        NoiseTerms.for_classes(CLASSES, mu, 1e-5),
    )
    mechanism = terms.mechanism(posed, LATTICE, members=1, survivors_min=1, colluders=0)
    own = Collected(posed, LATTICE, noise=terms)
    own.update(*data)
    total = own.vector(LATTICE).copy()
    MemberNoise(posed.layout, mechanism.shares, Keystream(seed.to_bytes(32, "little"))).add_to(total)
    gathering, summed = posed.gathering(LATTICE), Summed(LATTICE, 1, mechanism=mechanism)
    gathering.take(0, total)
    pooled = posed.gathered(gathering, summed)
    answer = posed.answer(pooled, summed)
    return Earlier(name, pooled, answer.head), answer


def digits(seed: int) -> tuple[Data, Data]:
    """1,300 records to fit, 497 to judge by."""
    data = load_digits()
    rows, order = unit_rows(data.data)[0], np.random.default_rng(seed).permutation(len(data.data))
    fit, held = order[:1300], order[1300:]
    return (rows[fit], data.target[fit]), (rows[held], data.target[held])


def clouds(seed: int) -> tuple[Data, Data]:
    """20,000 records of classes from 40 % to 1 %, and 5,000."""
    centres = 0.9 * np.random.default_rng(5).standard_normal((CLASSES, DIM))

    def drawn(rng: np.random.Generator, records: int) -> Data:
        labels = rng.choice(CLASSES, records, p=SHARES)
        return unit_rows(np.maximum(centres[labels] + rng.standard_normal((records, DIM)), 0))[0], labels

    return drawn(np.random.default_rng(seed), 20_000), drawn(np.random.default_rng(99), 5_000)


def accuracy(answer: Answer | Earlier, data: Data) -> tuple[float, float]:
    """In %: of the records, and the mean over classes."""
    assert answer.head is not None
    hits = answer.head.predict(data[0], normalise=True) == data[1]
    return 100 * float(hits.mean()), 100 * float(np.mean([hits[data[1] == c].mean() for c in range(CLASSES)]))


def measured(fit: Data, held: Data, mu: float, seed: int) -> dict[str, float]:
    """One column of the table."""
    half = mu * math.sqrt(0.5)
    ffc, _ = rest("ffc", fit, mu, seed)
    first, _ = rest("ffc", fit, half, seed)
    counts, _ = rest("counts", fit, mu * math.sqrt(0.1), seed)
    balanced = asked("balanced", fit, mu * math.sqrt(0.9), seed, counts, bias=False)
    exact = ReliabilityStatistics(ffc.head) if ffc.head is not None else None
    assert exact is not None
    exact.update(*held, normalise=True)
    tau = asked("reliability", held, mu, seed, ffc, bins=15).temperature
    assert tau is not None
    known = asked("reliability", held, mu, seed, ffc, bins=15, temperature=exact.temperature)
    error = float(known.documents["reliability"].notes["calibration_error"])
    lost = np.interp(math.log(tau), np.log(exact.temperatures), exact.losses) - exact.losses.min()
    return {
        "ffc": accuracy(ffc, held)[0],
        "ffc, recalls": accuracy(ffc, held)[1],
        "balanced, recalls": accuracy(balanced, held)[1],
        "folds, 2": accuracy(asked("folds", fit, mu, seed, folds=2, bias=False), held)[0],
        "folds, 5": accuracy(asked("folds", fit, mu, seed, folds=5, bias=False), held)[0],
        "ffc and loo": accuracy(asked("loo", fit, half, seed + 9, first), held)[0],
        "ccvr": accuracy(asked("ccvr", fit, mu, seed, **CCVR), held)[0],
        "ffc and ccvr of 16 axes": accuracy(asked("ccvr", fit, half, seed + 9, first, **CCVR, axes=16), held)[
            0
        ],
        "nats lost": float(lost),
        "points off": 100 * abs(error - float(exact.calibration_errors[exact.losses.argmin()])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/noisy_questions.json")
    given = parser.parse_args()
    table: dict[str, dict[str, float]] = {}
    for name, source in (("digits", digits), ("clouds", clouds)):
        for epsilon in EPSILONS:
            mu = gdp_mu(epsilon, 1e-5)
            seen = [measured(*source(seed), mu, seed) for seed in range(SEEDS)]
            means = {key: round(float(np.mean([each[key] for each in seen])), 2) for key in seen[0]}
            table[f"{name}, ε = {epsilon:g}"] = means
            print(name, f"ε = {epsilon:g}", json.dumps(means, ensure_ascii=False))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"written to {given.output}")


if __name__ == "__main__":
    main()
