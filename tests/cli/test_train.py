import json
import re
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli
from training.experiments.config import Experiment
from training.experiments.running import FinishedRun, run_experiment
from training.federated import DivergedError
from training.results import Diverged, RunResult
from veilsum.cli import training_run

QUICK = ("--set", "training.rounds=1", "--set", "training.local_epochs=1", "--set", "calibrate.rff.size=32")
SMALLER = (*QUICK, "--set", "data.train_records=300", "--set", 'model={architecture = "mlp"}')


def read_result(path: Path) -> RunResult:
    return RunResult.model_validate_json(path.read_text())


def test_an_experiment_from_its_name_to_features_for_a_round(cli: Cli) -> None:
    outcome = cli("train", "digits-spherefed", *SMALLER, "--features", "--output", "made/t", "--json")
    assert outcome.code == 0
    folder = Path("made/t/seed-0")
    result = read_result(folder / "result.json")
    assert outcome.values["accuracy"] == result.accuracy
    assert outcome.values["after ffc"] == result.accuracy_after("ffc")
    assert outcome.values["partitions"] == [result.deal.digest]
    assert result.scale.startswith("with training.rounds=1, training.local_epochs=1, ")
    with np.load(folder / "member-02.npz") as data:
        assert data["features"].shape == (sum(result.deal.label_counts[2]), 64)
    said = cli.json(
        "calibrate", *(folder / f"member-{k:02}.npz" for k in range(12)), "--held-out", folder / "test.npz"
    )
    assert said["accuracy"] == pytest.approx(result.accuracy_after("ffc"), abs=0.01)


def test_a_seed_that_diverges_does_not_stop_the_next(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:

    def one_diverges(experiment: Experiment, seed: int, **options: Any) -> FinishedRun:
        if seed == 0:
            raise DivergedError(1, 0.1)
        return run_experiment(experiment, seed, **options)

    monkeypatch.setattr(training_run, "run_experiment", one_diverges)
    outcome = cli("train", "digits-fedavg", *SMALLER, "--seed", 0, "--seed", 1)
    assert re.search(r"1 of 2 .*\bseed 0: ", outcome.error)
    assert Diverged.model_validate_json(Path("runs/train/seed-0/result.json").read_text()).round == 1
    assert read_result(Path("runs/train/seed-1/result.json")).seed == 1


@pytest.mark.slow
def test_several_seeds_and_what_they_come_to(cli: Cli) -> None:
    wanted = ("train", "digits-fedavg", *SMALLER, "--seed", 1, "--seed", 2, "--json")
    values = cli(*wanted).values
    accuracies = [read_result(Path(f"runs/train/seed-{seed}/result.json")).accuracy for seed in (1, 2)]
    assert values["seeds"] == [1, 2]
    assert values["accuracy"] == pytest.approx(np.mean(accuracies))
    assert values["accuracy, deviation"] == pytest.approx(np.std(accuracies, ddof=1))
    again = cli(*wanted)
    assert (again.values, again.err) == (values, "")  # there was nothing left to train


def test_what_cannot_be_trained(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    for words in (
        ("x",),
        ("digits-fedavg", "--variant", "x"),
        ("digits-fedavg", "--set", 'extends="x"'),
        ("--set", 'deal={name = "iid", members = 2000}'),
        *((*SMALLER, *more.split()) for more in ("--device x", "--device meta", "--output file")),
    ):
        assert cli("train", *words).error
    lower = (*SMALLER, "--output", "made")
    assert cli("train", *lower, "--json").code == 0
    fewer = ("calibrate.ffc.ridge=0.0", "data.train_records=50", 'deal={name="iid", members=3}')
    few = (*SMALLER, *(word for change in fewer for word in ("--set", change)), "--output", "few")
    assert "calibrate.ffc: " in cli("train", *few).error
    assert re.search(r"\blr\b", cli("train", *lower, "--set", "training.lr=0.25").error)
    assert "1e+30" in cli("train", *SMALLER, "--set", "training.lr=1e30", "--output", "other").error
    assert json.loads(cli("train", "x", "--json").out)["error"]

    with training_run.lock_folder(Path("made/seed-0")):
        assert "made/seed-0" in cli("train", *lower).error

    def killed(*_: object, **__: object) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr(training_run, "run_experiment", killed)
    assert "--workers" in cli("train", *SMALLER).error
