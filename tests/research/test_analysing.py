from pathlib import Path
from typing import Any

import numpy as np
import pytest

from research.analyse import analysed, main
from research.results import AnalysedResult, read_result
from training.experiments.config import Experiment, load_experiment
from training.experiments.running import run_experiment

SMALL: dict[str, Any] = {
    "training": {"rounds": 1, "local_epochs": 1},
    "deal": {"name": "iid", "members": 3},
    "data": {"train_records": 200},
    "calibrate": {"rff": {"size": 16}},
}


def looked_at(experiment: Experiment) -> AnalysedResult:
    return analysed(experiment, run_experiment(experiment, 0))


@pytest.fixture(scope="module")
def spherefed() -> AnalysedResult:
    return looked_at(load_experiment("digits-spherefed", None, SMALL))


@pytest.mark.slow
def test_a_run_s_analyses_are_of_its_members_and_its_heads(spherefed: AnalysedResult) -> None:
    found = spherefed.analyses
    assert np.array(found.cka["head"]).shape == (3, 3)
    # SphereFed's head is not trained.
    np.testing.assert_allclose(np.array(found.head_norms, dtype=float), np.ones((3, 10)), rtol=1e-5)
    assert found.consistency["direction"] == pytest.approx(1)
    np.testing.assert_allclose(found.singular_values, np.ones(10), rtol=1e-5)
    assert found.separability is not None
    best = max(spherefed.calibrations, key=lambda each: each.accuracy)
    assert list(found.predicted) == ["none", best.kind]
    for kind, answers in found.predicted.items():  # all 450 test records are shown
        assert np.mean(np.equal(answers, found.labels)) == pytest.approx(spherefed.accuracy_after(kind))


@pytest.mark.slow
def test_the_command_analyses_a_run_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("training.rounds=1", "training.local_epochs=1", "data.train_records=200", "calibrate={ffc = {}}")
    options = [word for change in small for word in ("--set", change)]
    monkeypatch.setattr("sys.argv", ["analyse", "digits-spherefed", *options, "--output", str(tmp_path)])
    folder = tmp_path / "seed-0"
    assert main() == 0
    model, first = (folder / "run" / "server-1.safetensors").read_bytes(), read_result(folder / "result.json")
    assert main() == 0
    assert (folder / "run" / "server-1.safetensors").read_bytes() == model
    again = read_result(folder / "result.json")
    assert (again.analyses, again.sweeps, again.history) == (first.analyses, first.sweeps, first.history)
    assert first.scale.startswith(
        "with training.rounds=1, "
    )  # else reports would compare it with a paper's row
    assert first.analyses.cka
    assert first.sweeps
