"""A noisy round of CCVR compared with one of ffc at the same budget: the table of docs/privacy.md, "The other questions".

python -m benchmarks.noisy_questions
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from benchmarks.reports import write_findings
from tests.support.simulator import SeededRandom, simulated_content, simulated_question
from veilsum.calibration.answer import Answer
from veilsum.calibration.rows import unit_rows
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import SUM_STEP
from veilsum.study import answers, vectors

ROOT = Path(__file__).parents[1]
DIM, CLASSES, SEEDS = 64, 10, 3
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SHARES = np.array([0.4, 0.2, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03, 0.02, 0.01])

Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def asked(statistic: dict[str, Any], data: Data, epsilon: float, seed: int) -> Answer:
    """Return the answer from one noisy sum over all records, with exactly the noise that ε requires."""
    question = {
        **simulated_question(3, colluders=0),
        "dim": DIM,
        "classes": [f"class-{label}" for label in range(CLASSES)],
        "statistics": [statistic],
        "ring_bits": 48,
        "records": {"least": 1, "most": 20_000, "least_per_class": 1, "rows_per_id": 1},
        "noise": {"epsilon": epsilon, "delta": 1e-5, "unit": "record", "recipe": "sum"},
    }
    content = simulated_content(question, 0)
    alone = RoundSpec(content, b"", "", SUM_STEP, (), members=1, survivors_min=1, chunk_elements=1)
    total = vectors.compute_vector(alone, *data, random_bytes=SeededRandom(seed))
    return answers.compute_answer(alone, answers.read_pooled(alone, total, 1), 1)


def digits(seed: int) -> tuple[Data, Data]:
    """Return 1,300 training records and 497 test records."""
    data = load_digits()
    rows, order = unit_rows(data.data)[0], np.random.default_rng(seed).permutation(len(data.data))
    fit, held = order[:1300], order[1300:]
    return (rows[fit], data.target[fit]), (rows[held], data.target[held])


def clouds(seed: int) -> tuple[Data, Data]:
    """Return 20,000 records of classes from 40 % to 1 %, and 5,000 test records."""
    centres = 0.9 * np.random.default_rng(5).standard_normal((CLASSES, DIM))

    def drawn(rng: np.random.Generator, records: int) -> Data:
        labels = rng.choice(CLASSES, records, p=SHARES)
        return unit_rows(np.maximum(centres[labels] + rng.standard_normal((records, DIM)), 0))[0], labels

    return drawn(np.random.default_rng(seed), 20_000), drawn(np.random.default_rng(99), 5_000)


def accuracy(answer: Answer, data: Data) -> float:
    """Return the accuracy in %."""
    assert answer.head is not None
    return 100 * float((answer.head.predict(data[0], normalise=True) == data[1]).mean())


def measured(fit: Data, held: Data, epsilon: float, seed: int) -> dict[str, float]:
    """Return one column of the table."""
    return {
        "ffc": accuracy(asked({"kind": "ffc"}, fit, epsilon, seed), held),
        "ccvr": accuracy(asked({"kind": "ccvr"}, fit, epsilon, seed), held),
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
            seen = [measured(*source(seed), epsilon, seed) for seed in range(SEEDS)]
            means = {key: round(float(np.mean([each[key] for each in seen])), 2) for key in seen[0]}
            table[f"{name}, ε = {epsilon:g}"] = means
            print(name, f"ε = {epsilon:g}", json.dumps(means, ensure_ascii=False))
    write_findings(table, given.output)


if __name__ == "__main__":
    main()
