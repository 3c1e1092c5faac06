"""docs/heads.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import calibration.gradient
from calibration import (
    ccvr_layout,
    ffc_layout,
)
from calibration.privacy import gradient_release, mean_release
from protocol import study

PAGE = (Path(__file__).parents[2] / "docs" / "heads.md").read_text("utf-8")


ROUNDS = {
    "FFC": ffc_layout(1280, 100),
    "random features, D = 4096": ffc_layout(4096, 100),
    "mean, under noise": mean_release(1280).layout,
    "CCVR": ccvr_layout(1280, 100),
    "refinement, under noise": gradient_release(1280, 100).layout,
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
    assert len(names) > 20
    fields = {name for block in (study.FFC, study.RandomFeatures, study.After) for name in block.model_fields}
    fields |= {f"after.{name}" for name in study.After.model_fields} | {"ncm", "pooled"}
    for name in set(names) - fields - {"calibration", "g"}:
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
