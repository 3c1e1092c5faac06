"""The demo that withholds a digit: on the page, in the table, and once with real processes."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_sdk import Result
from tests.support.pages import Page
from tests.veilsum.demo.test_command import demo, demo_verify, two_rounds
from veilsum.demo.plan import DemoPlan
from veilsum.features import read_table


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = partial(DemoPlan, recipe=two_rounds, upload_s=5, answer_s=5)
    monkeypatch.setattr("veilsum.demo.plan.DemoPlan", plan)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_digit_that_two_members_hold_is_kept_out_of_the_sum(tmp_path: Path) -> None:
    code, printed, told = demo("--output", str(tmp_path), "--seed", "3", "--withhold", "--keep", "--json")
    assert code == 0, told
    summary: dict[str, Any] = json.loads(printed)
    assert summary["withheld"] == [9]
    assert summary["weights_max_rel_diff"] < 1e-6
    assert summary["accuracy_masked"] == summary["accuracy_plain"]
    assert demo_verify(tmp_path)[0] == 0
    result = Result.load(tmp_path / "result")
    holders, least = result.record.holders, result.spec.question.records.least_per_class
    held = [
        np.bincount(read_table(path).labels, minlength=10)
        for path in sorted(tmp_path.glob("members/*/features.*"))
    ]
    counted = dict(zip(result.evidence.manifest.members, held, strict=True))
    there = [counted[member] for member in result.survivors]
    assert holders == tuple(sum(int(counts[digit] >= least) for counts in there) for digit in range(10))
    assert holders[9] <= 2
    assert not load_file(tmp_path / "result" / "weights.safetensors")["weights"][:, 9].any()
    features = read_table(next(iter(sorted(tmp_path.glob("members/*/features.*"))))).features
    assert 9 not in result.predict(features)
    assert f"9 (held by {holders[9]})" in Page((tmp_path / "report.html").read_text()).text
