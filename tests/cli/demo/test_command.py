"""The command, and the whole demo once: real processes, real kills, and two rounds of training."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from client_sdk import Result
from tests.support.pages import Page
from training.recipe import Recipe
from veilsum.cli.app import app
from veilsum.cli.demo.comparison import Heads
from veilsum.cli.demo.facts import Facts
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.plan import DemoPlan, demo_recipe
from veilsum.cli.features import read_table


def two_rounds(seed: int) -> Recipe:
    return replace(demo_recipe(seed), rounds=2, local_epochs=1)


QUICK = partial(DemoPlan, recipe=two_rounds, window_s=3)


def demo(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_a_seed_has_32_bits(tmp_path: Path) -> None:
    code, _, err = demo("--seed", str(2**32), "--output", str(tmp_path / "demo"))
    assert (code, "--seed" in err, (tmp_path / "demo").exists()) == (2, True, False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the demo to two rounds and six members. Each needs more rows than it would among twelve.

    So short a training tells a fifteenth as much of how slow the machine is.
    """
    monkeypatch.setattr("veilsum.cli.demo.plan.TRAINING_PER_WINDOW", 0.2)
    monkeypatch.setattr("veilsum.cli.demo.plan.DEMO_MEMBERS", 6)
    monkeypatch.setattr("veilsum.cli.demo.plan.MEMBER_ROWS_MIN", 44)
    monkeypatch.setattr("veilsum.cli.demo.plan.DemoPlan", QUICK)


@pytest.mark.usefixtures("quick")
def test_the_demo_end_to_end(tmp_path: Path) -> None:
    code, printed, told = demo("--output", str(tmp_path), "--seed", "3", "--json")
    assert code == 0, told
    summary = json.loads(printed)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    first, second = (lost["member"] for lost in summary["lost"])
    assert [lost["after"] for lost in summary["lost"]] == ["pairing", "upload"]
    assert summary["members"] == 6
    assert summary["mended"]["canaries"].endswith(", transposed")
    assert f"{summary['mended']['member']}: canaries differ by" in told
    assert "6 of 6" in told
    assert len(summary["survivors"]) == 5
    assert first not in summary["survivors"]
    assert second in summary["survivors"]
    assert summary["accuracy_before"] < summary["accuracy_masked"]
    assert summary["accuracy_masked"] == summary["accuracy_plain"]
    assert summary["weights_max_rel_diff"] < 1e-6
    assert summary["accuracy_fedavg"] < summary["accuracy_fedavg_plain"]
    assert f"{first} killed" in told
    assert first in (tmp_path / "report.html").read_text()
    assert not {"admin", "coordinator", "members"} & {path.name for path in tmp_path.iterdir()}
    code, printed, _ = demo_verify(tmp_path)
    assert code == 0
    survivors = [each["member"] for each in json.loads(printed)["record"]["survivors"]]
    assert survivors == summary["survivors"]


def demo_verify(folder: Path) -> tuple[int, str, str]:
    record = json.loads((folder / "result" / "record.json").read_text())
    result = CliRunner().invoke(
        app, ["verify", str(folder / "result"), "--admin-key", record["federation"], "--json"]
    )
    return result.exit_code, result.stdout, result.stderr


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, told = demo("--output", str(tmp_path / "out"))
    assert code == 1
    assert "pip install 'veilsum[service,training]'" in told
    assert not (tmp_path / "out").exists()


@contextmanager
def found(monkeypatch: pytest.MonkeyPatch, facts: Facts) -> Iterator[None]:
    def run(*_: Any, **__: Any) -> tuple[Facts, Folder]:
        return facts, Folder(Path("/out"))

    with monkeypatch.context() as patched:
        patched.setattr("veilsum.cli.demo.run.run_demo", run)
        yield


def test_a_run_that_shows_the_wrong_thing_exits_1_and_says_so(
    make_facts: Callable[..., Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    with found(
        monkeypatch,
        make_facts(
            max_rel_diff=1.0,
            accuracies=Heads(fedavg=0.8, fedavg_plain=0.9, before=0.7, masked=0.8, plain=0.8),
        ),
    ):
        code, printed, told = demo("--json")
    assert code == 1
    assert json.loads(printed)["weights_max_rel_diff"] == 1.0
    assert "1e-06" in told
    assert "80.00%" in told


@pytest.mark.slow
def test_a_digit_that_two_members_hold_is_kept_out_of_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilsum.cli.demo.plan.DemoPlan", partial(QUICK, window_s=5))
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
        np.bincount((table := read_table(path)).labels[~table.is_canary], minlength=10)
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
