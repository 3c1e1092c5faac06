"""docs/heads.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibration
from calibration import (
    DenseBlock,
    FFCStatistics,
    Head,
    Layout,
    LeaveOneOutStatistics,
    ReliabilityStatistics,
    ccvr_layout,
    ffc_layout,
    fold_layout,
    ridge_path,
)
from calibration.privacy.mechanism import gradient_layout
from calibration.questions import Wish, ask

PAGE = (Path(__file__).parents[2] / "docs" / "heads.md").read_text("utf-8")


def leave_one_out() -> Layout:
    statistics = FFCStatistics(2, 2)
    statistics.update(np.eye(2), [0, 1])
    return LeaveOneOutStatistics(ridge_path(statistics)).layout


ROUNDS = {
    "FFC": ffc_layout(1280, 100),
    "class-balanced": FFCStatistics(1280, 100, class_weights=np.ones(100)).layout,
    "five folds": fold_layout(1280, 100, 5),
    "leave-one-out, a second round": leave_one_out(),
    "random features, D = 4096": ffc_layout(4096, 100),
    "mean": ask("mean", Wish(1280, 100)).layout,
    "CCVR": ccvr_layout(1280, 100),
    "CCVR of 64 axes": ccvr_layout(64, 100),
    "refinement, exact or under noise": Layout((*gradient_layout(1280, 100).blocks, DenseBlock("n", (1,)))),
    "reliability, a second round": ReliabilityStatistics(Head(np.zeros((2, 100)), None, ())).layout,
}


def test_every_round_costs_what_the_page_says() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([\d,]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(ROUNDS)
    for name, numbers, megabytes in rows:
        elements = ROUNDS[name].elements
        assert int(numbers.replace(",", "")) == elements, name
        decimals = len(megabytes.partition(".")[2])
        assert float(megabytes) == pytest.approx(elements * 6 / 1e6, abs=0.51 * 10**-decimals), name


def test_every_name_on_the_page_exists() -> None:
    names = re.findall(r"`([A-Za-z_]+(?:\.[a-z_]+)?)(?:\([^`]*\))?`", PAGE)
    assert len(names) > 30
    attributes = set(dir(LeaveOneOutStatistics))
    for name in set(names) - {"calibration", "g"} - attributes:
        thing = calibration
        for part in name.split("."):
            thing = getattr(thing, part)


def test_the_page_s_example_runs() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/heads.md", "exec"), names)
    answers = names["labels"][names["new"]]
    assert (names["lda"].predict(names["rows"][names["new"]]) == answers).mean() > 0.85
    assert (names["probabilities"].argmax(axis=1) == answers).mean() > 0.85
    assert 0 < names["doubtful"].mean() < 0.1
