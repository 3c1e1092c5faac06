import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from training.results import (
    Cost,
    Data,
    Deal,
    Diverged,
    Environment,
    Line,
    Result,
    read_result,
    write_result,
)
from veilsum.cli import app

RUNNER = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = Result(
        experiment="ccvr-fedavg",
        method="FedAvg",
        seed=0,
        recipe={},
        data=Data(name="CIFAR-10", classes=2, train_records=10, test_records=5, shape=(3, 32, 32)),
        deal=Deal(kind="iid", digest="0" * 64, label_counts=((3, 4), (2, 1))),
        history=(Line(round=1, lr=0.1, local_loss=1, test_loss=1, accuracy=0.5, seconds=1),),
        accuracy=0.5,
        cost=Cost(wall_s=1),
        environment=Environment.here(),
    )
    write_result(result, tmp_path / "results" / "one.json")
    return tmp_path


def test_a_folder_of_results_becomes_a_page(folder: Path) -> None:
    output = folder / "deep" / "report.html"
    done = RUNNER.invoke(
        app, ["report", str(folder / "results"), "--output", str(output), "--title", "Mine", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["beside a paper's row"] == 1
    assert "<h1>Mine</h1>" in output.read_text()


def test_a_page_of_the_documentation_is_markdown(folder: Path) -> None:
    output = folder / "page.md"
    assert RUNNER.invoke(app, ["report", str(folder / "results"), "--output", str(output)]).exit_code == 0
    assert output.read_text().startswith("# Reproduction")


def test_runs_that_diverged_are_listed_beside_others_and_alone_are_nothing_to_compare(folder: Path) -> None:
    run = read_result(folder / "results" / "one.json")
    shared = run.model_dump(include={"experiment", "method", "recipe", "data", "deal", "environment"})
    write_result(Diverged(**shared, seed=1, round=3, lr=0.1), folder / "bad" / "result.json")
    both = [str(folder / "results"), str(folder / "bad"), "--output", str(folder / "page.md"), "--json"]
    done = RUNNER.invoke(app, ["report", *both])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["diverged"] == 1
    alone = RUNNER.invoke(app, ["report", str(folder / "bad"), "--json"])
    assert alone.exit_code == 1
    assert "all of these runs diverged" in alone.output


def test_a_folder_without_results_is_an_error_that_says_so(tmp_path: Path) -> None:
    failed = RUNNER.invoke(app, ["report", str(tmp_path), "--json"])
    assert failed.exit_code == 1
    assert "holds no results; `veilsum train` writes them" in failed.output
