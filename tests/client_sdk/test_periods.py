"""Rehearsals and judgements: what they add up, and what they leave behind (periods)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.consortium import CLASSES, DIM, Consortium
from tests.support.serving import Stage
from veilsum.calibration.head import Head
from veilsum.calibration.judge import NOT_SHARES, list_figures
from veilsum.calibration.judge_tables import BY_CLASS, JOINT, ShownHeads
from veilsum.study.judgement import TABLES_DOCUMENT
from veilsum.study.judging import encode_shown

JUDGE: dict[str, Any] = {
    "epsilon": 9.0,
    "delta": 1e-5,
    "heads": 2,
    "positive": None,
    "bins": {"confidence": 2, "score": 4},
}
HEAD = Head(np.array([[-1.0, 1.0]] * DIM), np.array([1.5, -1.5]), ())
ROWS = 400


@pytest.fixture
def judging(stage: Stage, tmp_path: Path) -> Consortium:
    return make_judging(stage, tmp_path)


def make_judging(stage: Stage, folder: Path) -> Consortium:
    """Make three members of many records, half of which are held out, in a study with a judge."""
    records = {"least": 17, "most": ROWS, "least_per_class": 5, "rows_per_id": 1}
    consortium = Consortium(stage, folder, held_out=0.5, question={"judge": JUDGE, "records": records})
    for index, member in enumerate(consortium.ids):
        rng = np.random.default_rng(index)
        labels = rng.integers(0, len(CLASSES), ROWS)
        features = rng.standard_normal((ROWS, DIM)) + labels[:, None]
        consortium.given[member] = Records(features, labels, [f"{member}-{row}" for row in range(ROWS)])
    return consortium


def enrol(consortium: Consortium, period: str) -> str:
    """Form a cohort of all members, with all of their records."""
    cohort = consortium.open_cohort(period)
    consortium.together({m: consortium.member(m).enrol(cohort, consortium.given[m]) for m in consortium.ids})
    return cohort


def judge(consortium: Consortium, period: str) -> dict[str, Result]:
    """Form a cohort of a period, and judge two heads in it."""
    cohort = enrol(consortium, period)
    question = consortium.content().question
    shown = ShownHeads((HEAD, HEAD), 1.0, np.array([-1.0, 0.0, 1.0]))
    heads = consortium.operator.store_heads(cohort, encode_shown(question, shown))
    round_id = consortium.operator.open_round(cohort, heads=heads).round
    found: dict[str, Result] = consortium.together(
        consortium.contributions(round_id), stuck=consortium.expiring(round_id)
    )
    return found


def held_out(consortium: Consortium, member: str) -> list[int]:
    """Return the places of a member's held-out rows."""
    ledger = consortium.open[member].session.store.ledger
    marks, records = ledger.marks_in(consortium.admin.public), consortium.given[member]
    return [row for row, key in enumerate(records.keys) if marks.is_held_out(key)]


def test_a_judgement_counts_right_and_wrong_of_held_out_records(judging: Consortium) -> None:
    results = judge(judging, "judge-1")
    right = total = 0
    for member in judging.ids:
        ledger = judging.open[member].session.store.ledger
        [run] = ledger.list_runs()
        features, labels, _ = ledger.load_rows(run)
        assert 0.3 * len(held_out(judging, member)) < len(labels) < 0.7 * len(held_out(judging, member))
        right += int((HEAD.predict(features, normalise=True) == labels).sum())
        total += len(labels)
    for result in results.values():
        result.verify(judging.admin.public)
        joint, by_class = (
            result.read_arrays(TABLES_DOCUMENT)[JOINT],
            result.read_arrays(TABLES_DOCUMENT)[BY_CLASS],
        )
        assert abs(joint[3] - right) < 25
        assert abs(by_class.sum() - total) < 50
        assert result.judge_figures.accuracy.low <= right / total <= result.judge_figures.accuracy.high
    result = results["member-0"]
    listed = list_figures(result.judge_figures, CLASSES)
    shares = [each.value for name, each in listed if each.is_stated and name not in NOT_SHARES]
    assert shares
    assert all(f"| {share:.1%} | " in result.model_card() for share in shares)


def test_a_record_is_judged_once_in_its_life_and_never_summed(judging: Consortium) -> None:
    judge(judging, "judge-1")
    judge(judging, "judge-2")
    enrol(judging, "p1")
    for member in judging.ids:
        ledger = judging.open[member].session.store.ledger
        first, second, summed = (ledger.load_rows(run)[2] for run in ledger.list_runs())
        ranks = [{rank.tobytes() for rank in found} for found in (first, second, summed)]
        assert not ranks[0] & ranks[1]
        assert not ranks[2] & (ranks[0] | ranks[1])
        out = held_out(judging, member)
        assert len(ranks[2]) == ROWS - len(out)
        assert [run.state for run in ledger.list_runs()] == [State.SPENT, State.SPENT, State.RESERVED]
