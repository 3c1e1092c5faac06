from pathlib import Path
from typing import Any

import numpy as np
import pytest

from research.analyse import analysed, main
from research.report import page
from research.report.cells import cells
from research.results import AnalysedResult, read_result
from training.experiments import Experiment, load_experiment, run

SMALL: dict[str, Any] = {
    "training": {"rounds": 1, "local_epochs": 1},
    "deal": {"name": "iid", "members": 3},
    "data": {"train_records": 200},
    "calibrate": {"rff": {"size": 16}},
}


def looked_at(experiment: Experiment) -> AnalysedResult:
    return analysed(experiment, run(experiment, 0))


@pytest.fixture(scope="module")
def spherefed() -> AnalysedResult:
    return looked_at(load_experiment("digits-spherefed", None, SMALL))


@pytest.mark.slow
def test_a_run_s_analyses_are_of_its_members_and_its_heads(spherefed: AnalysedResult) -> None:
    found = spherefed.analyses
    assert np.array(found.cka["head"]).shape == (3, 3)
    # Nobody trains SphereFed's head.
    np.testing.assert_allclose(np.array(found.head_norms, dtype=float), np.ones((3, 10)), rtol=1e-5)
    assert found.consistency["direction"] == pytest.approx(1)
    np.testing.assert_allclose(found.singular_values, np.ones(10), rtol=1e-5)
    assert found.separability is not None
    best = max(spherefed.calibrations, key=lambda each: each.accuracy)
    assert list(found.predicted) == ["none", best.kind]
    for kind, answers in found.predicted.items():  # all 450 test records are shown
        assert np.mean(np.equal(answers, found.labels)) == pytest.approx(spherefed.after(kind))


@pytest.mark.slow
def test_calibrations_with_a_hyper_parameter_are_swept_over_it(spherefed: AnalysedResult) -> None:
    [ridges] = spherefed.sweeps
    assert (ridges.kind, ridges.parameter) == ("ffc", "ridge")
    own = load_experiment("digits-fedavg", None, {**SMALL, "calibrate": {"ccvr": {"per_class": 60}}})
    result = looked_at(own)
    virtual = next(each for each in result.sweeps if each.kind == "ccvr")
    assert list(virtual.values) == [10, 50, 60]
    assert virtual.accuracies[-1] == result.after("ccvr")


@pytest.mark.slow
def test_nothing_is_looked_at_unless_asked_and_no_calibration_needs_no_sweep() -> None:
    without = dict.fromkeys(("ffc", "rff", "lda"), False)
    bare = load_experiment("digits-spherefed", None, {**SMALL, "calibrate": without})
    result = looked_at(bare)
    assert result.sweeps == ()
    assert list(result.analyses.predicted) == ["none"]


@pytest.mark.slow
def test_a_report_draws_all_of_it(spherefed: AnalysedResult) -> None:
    fedavg = looked_at(load_experiment("digits-fedavg", None, SMALL))
    text = page(cells([spherefed, fedavg]))
    for alternative in (
        "Accuracy by class before and after",
        "Accuracy of FFC over λ.",
        "Accuracy of CCVR over virtual features a class.",
        "Centred kernel alignment between members&#x27; models, by layer.",
        "Singular values of the global head",
        "The norm of each class vector at each member",
        "Gain by the best calibration over the distance between classes&#x27; features.",
        "t-SNE of test features",
    ):
        assert f'alt="{alternative}' in text


@pytest.mark.slow
def test_the_command_analyses_a_run_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("training.rounds=1", "training.local_epochs=1", "data.train_records=200", "calibrate={ffc = {}}")
    options = [word for change in small for word in ("--set", change)]
    monkeypatch.setattr("sys.argv", ["analyse", "digits-spherefed", *options, "--output", str(tmp_path)])
    folder = tmp_path / "seed-0"
    assert main() == 0
    model, first = (folder / "run.safetensors").read_bytes(), read_result(folder / "result.json")
    assert main() == 0
    assert (folder / "run.safetensors").read_bytes() == model
    again = read_result(folder / "result.json")
    assert (again.analyses, again.sweeps, again.history) == (first.analyses, first.sweeps, first.history)
    assert first.analyses.cka
    assert first.sweeps
