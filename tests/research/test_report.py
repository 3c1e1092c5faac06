import subprocess
import sys
from pathlib import Path

import pytest

from research.results import read_result
from training.results import Data, Deal, Diverged, Line, Machine, RunCost, RunResult, write_result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = RunResult(
        experiment="ccvr-fedavg",
        method="FedAvg",
        seed=0,
        recipe={},
        data=Data(name="CIFAR-10", classes=2, train_records=10, test_records=5, shape=(3, 32, 32)),
        deal=Deal(kind="iid", digest="0" * 64, label_counts=((3, 4), (2, 1))),
        history=(Line(round=1, lr=0.1, local_loss=1, test_loss=1, accuracy=0.5, seconds=1),),
        accuracy=0.5,
        cost=RunCost(wall_s=1),
        environment=Machine.describe_machine(),
    )
    write_result(result, tmp_path / "results" / "one.json")
    return tmp_path


def reported(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "research.report", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_folder_of_results_becomes_a_page(folder: Path) -> None:
    output = folder / "deep" / "report.html"
    done = reported(folder / "results", "--output", output, "--title", "Mine")
    assert done.returncode == 0, done.stderr
    assert "<h1>Mine</h1>" in output.read_text()


@pytest.mark.slow
def test_runs_that_diverged_alone_are_nothing_to_compare(folder: Path) -> None:
    run = read_result(folder / "results" / "one.json")
    shared = run.model_dump(include={"experiment", "method", "recipe", "data", "deal", "environment"})
    write_result(Diverged(**shared, seed=1, round=3, lr=0.1), folder / "bad" / "result.json")
    assert reported(folder / "results", folder / "bad", "--output", folder / "page.md").returncode == 0
    assert reported(folder / "bad").returncode != 0
