"""Plans of a mean and of refinement: their budgets add up, and their figures are those of the mechanisms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError
from calibration.privacy import Verdict, compose, gdp_mu, plan, plan_mean, plan_refined
from calibration.privacy.rounds import _GAINS

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 8, "colluders": 3}
ROOT = Path(__file__).parents[3]
FIGURES = json.loads((ROOT / "benchmarks" / "figures" / "refined_heads.json").read_text("utf-8"))


def test_all_rounds_of_a_refinement_cost_what_one_would() -> None:
    for rounds in (1, 4, 9):
        made = plan_refined(20_000, 64, 10, rounds=rounds, epsilon=2.0, bias=True, **COHORT)
        charged = [made.first.mechanism.mu_round, *[made.each.mechanism.mu_round] * rounds]
        assert made.mu == pytest.approx(compose(charged))
        assert 0.999 * gdp_mu(2.0, 1e-5) < made.mu < 1.000001 * gdp_mu(2.0, 1e-5)
        assert made.each.mechanism.release.layout.elements == 65 * 10
        assert made.whole.mechanism == plan(20_000, 64, 10, epsilon=2.0, bias=True, **COHORT).mechanism
        assert made.upload_bytes == made.first.upload_bytes + rounds * made.each.upload_bytes
    several = plan_refined(9_999, 64, 10, rounds=2, epsilon=2.0, rows_per_unit=2, **COHORT)
    assert several.each.mechanism.sensitivity == 2


def test_what_it_gains_is_read_off_what_was_measured() -> None:
    made = {
        rounds: plan_refined(20_000, 64, 10, rounds=rounds, epsilon=1.0, **COHORT) for rounds in (1, 3, 4, 99)
    }
    assert (made[1].gain, made[1].expected_loss, made[1].verdict) == (None, None, None)
    ratio = made[4].whole.eigenvalue_ratio
    for rounds, measured in ((3, 2), (4, 4), (99, 8)):
        row = next(row for row in reversed(_GAINS[measured]) if ratio >= row[0])
        assert made[rounds].gain == row[1:]
        gain, loss = made[rounds].gain, made[rounds].expected_loss
        assert gain is not None
        assert loss == tuple(lost - won for lost, won in zip(made[4].whole.expected_loss, gain, strict=True))
        assert made[rounds].verdict in {*Verdict}


def test_the_table_is_that_of_the_figures() -> None:
    figures = [row for row in FIGURES if not row["centred"]]
    start = {(row["problem"], row["epsilon"]): row["accuracy"] for row in figures if row["rounds"] == 0}
    for rounds, table in _GAINS.items():
        bounds = [low for low, _, _ in table]
        assert bounds[0] == 0
        for (low, median, worst), high in zip(table, [*bounds[1:], math.inf], strict=True):
            gained = [
                100 * (row["accuracy"] - start[row["problem"], row["epsilon"]])
                for row in figures
                if row["rounds"] == rounds and low <= row["eigenvalue_ratio"] < high
            ]
            assert median == pytest.approx(np.median(gained), abs=0.051)
            assert worst == pytest.approx(min(gained), abs=0.051)


def test_the_page_s_table_is_that_of_the_figures() -> None:
    from benchmarks.refined_heads import Figure, page  # noqa: PLC0415 - benchmarks import everything there is

    lines = (ROOT / "docs" / "privacy.md").read_text("utf-8").splitlines()
    rows = page([Figure(**row) for row in FIGURES])
    assert len(rows) == 16
    start = lines.index(rows[0])
    assert lines[start : start + 16] == rows


def test_the_mean_of_a_noisy_round_is_off_by_what_its_plan_says() -> None:
    made = plan_mean(1_000, 50, epsilon=1.0, **COHORT)
    noise = np.random.default_rng(0).standard_normal((200, 50)) * made.deviation
    assert made.error == pytest.approx(np.linalg.norm(noise * math.sqrt(2) / 1_000, axis=1).mean(), rel=0.02)
    assert made.epsilon == pytest.approx(1, rel=1e-6)
    assert plan_mean(9, 5, epsilon=1.0, rows_per_unit=4, **COHORT).mechanism.sensitivity == 4


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(CalibrationError, match="0 rounds of gradients: take 1 to 100"):
        plan_refined(10, 64, 10, rounds=0, epsilon=1.0, **COHORT)
    for records, epsilon in ((0, 1.0), (10, 0.0)):
        with pytest.raises(CalibrationError, match="at least a record and a positive ε"):
            plan_mean(records, 64, epsilon=epsilon, **COHORT)
