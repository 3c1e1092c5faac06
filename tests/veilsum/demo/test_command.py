"""The command, and the whole demo once: real processes, real kills, a recipe of two rounds."""

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from training import (
    Recipe,
    accuracy,
    extract_features,
    load_digits_dataset,
    train,
)
from training.calibrating import MemberFeatures, calibrate
from veilsum.cli import app
from veilsum.demo import coordinator
from veilsum.demo.comparison import Heads
from veilsum.demo.facts import Facts
from veilsum.demo.folder import Folder
from veilsum.demo.plan import DemoPlan, demo_fedavg_recipe, demo_partition, demo_recipe


def two_rounds(seed: int) -> Recipe:
    return replace(demo_recipe(seed), rounds=2, local_epochs=1)


def demo(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = partial(DemoPlan, recipe=two_rounds, upload_s=5, answer_s=5)
    monkeypatch.setattr("veilsum.demo.plan.DemoPlan", plan)


@pytest.mark.usefixtures("quick")
def test_the_demo_end_to_end(tmp_path: Path) -> None:
    code, printed, told = demo("--output", str(tmp_path), "--seed", "3", "--json")
    assert code == 0, told
    summary = json.loads(printed)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    first, second = (lost["member"] for lost in summary["lost"])
    assert [lost["after"] for lost in summary["lost"]] == ["card", "upload"]
    assert summary["members"] == 12
    assert len(summary["survivors"]) == 11
    assert first not in summary["survivors"]
    assert second in summary["survivors"]
    assert summary["accuracy_before"] < summary["accuracy_masked"]
    assert summary["accuracy_masked"] == summary["accuracy_plain"]
    assert summary["weights_max_rel_diff"] < 1e-6
    # The second takes its λ from the round's grid, which `calibrate` does not know.
    fedavg = (summary["accuracy_fedavg"], summary["accuracy_fedavg_plain"])
    assert fedavg == pytest.approx(fedavg_again(3, summary["survivors"]), abs=0.02)
    assert f"{first} killed (SIGKILL) after its card" in told
    assert first in (tmp_path / "report.html").read_text()
    assert not {"admin", "coordinator", "members"} & {path.name for path in tmp_path.iterdir()}
    code, printed, _ = demo_verify(tmp_path)
    assert code == 0
    survivors = [each["member"] for each in json.loads(printed)["record"]["survivors"]]
    assert survivors == summary["survivors"]


def fedavg_again(seed: int, survivors: list[str]) -> tuple[float, float]:
    """FedAvg's accuracy under the head that it learned, and under FFC's, by the training package alone."""
    data = load_digits_dataset(seed)
    partition = demo_partition(data.train, seed)
    classifier = train(demo_fedavg_recipe(two_rounds(seed)), data, partition).classifier
    everybody = MemberFeatures.of(classifier, data.train, partition)
    members = [int(name.removeprefix("member-")) - 1 for name in survivors]
    held = replace(
        everybody,
        features=tuple(everybody.features[k] for k in members),
        labels=tuple(everybody.labels[k] for k in members),
    )
    predicted = calibrate("ffc", held, bias=True).predict(extract_features(classifier, data.test.x).numpy())
    return accuracy(classifier, data.test), float((predicted == data.test.y.numpy()).mean())


def demo_verify(folder: Path) -> tuple[int, str, str]:
    record = json.loads((folder / "result" / "record.json").read_text())
    result = CliRunner().invoke(
        app, ["verify", str(folder / "result"), "--admin-key", record["federation"], "--json"]
    )
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("quick")
def test_a_coordinator_that_does_not_start_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(coordinator, "free_port", lambda: taken.getsockname()[1])
        code, printed, _ = demo("--output", str(tmp_path), "--json")
    assert code == 1
    error = json.loads(printed)["error"]
    assert error.startswith("the coordinator ended with exit code")
    assert "address already in use" in error
    assert (tmp_path / "coordinator" / "log").exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    code, _, told = demo("--output", str(tmp_path))
    assert code == 1
    assert "no demo wrote" in told


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
        patched.setattr("veilsum.demo.run.run", run)
        yield


def test_a_run_that_shows_the_wrong_thing_exits_1_and_says_so(
    make_facts: Callable[..., Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    with found(monkeypatch, make_facts(max_rel_diff=1.0, accuracies=Heads(0.9, 0.8, 0.8, 0.9, 0.9))):
        code, printed, told = demo("--json")
    assert code == 1
    assert json.loads(printed)["weights_max_rel_diff"] == 1.0
    assert "masked and plain weights differ by 1, more than 1e-06" in told
    assert "right on 80.00% of the test records" in told
