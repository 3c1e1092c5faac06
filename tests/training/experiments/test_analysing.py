from typing import Any

import numpy as np
import pytest

from training.experiments import load_experiment, run
from training.report import page
from training.report.cells import cells
from training.results import Result

SMALL: dict[str, Any] = {
    "training": {"rounds": 1, "local_epochs": 1},
    "deal": {"name": "iid", "members": 3},
    "data": {"train_records": 200},
    "calibrate": {"rff": {"size": 16}},
}


@pytest.fixture(scope="module")
def spherefed() -> Result:
    return run(load_experiment("digits-spherefed", None, SMALL), 0, analyses=True).result


def test_a_run_s_analyses_are_of_its_members_and_its_heads(spherefed: Result) -> None:
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


def test_calibrations_with_a_hyper_parameter_are_swept_over_it(spherefed: Result) -> None:
    [ridges] = spherefed.sweeps
    assert (ridges.kind, ridges.parameter) == ("ffc", "ridge")
    own = load_experiment("digits-fedavg", None, {**SMALL, "calibrate": {"ccvr": {"per_class": 60}}})
    result = run(own, 0, analyses=True).result
    virtual = next(each for each in result.sweeps if each.kind == "ccvr")
    assert list(virtual.values) == [10, 50, 60]
    assert virtual.accuracies[-1] == result.after("ccvr")


def test_nothing_is_looked_at_unless_asked_and_no_calibration_needs_no_sweep() -> None:
    without = dict.fromkeys(("ffc", "rff", "lda"), False)
    bare = load_experiment("digits-spherefed", None, {**SMALL, "calibrate": without})
    assert run(bare, 0).result.analyses.cka == {}
    result = run(bare, 0, analyses=True).result
    assert result.sweeps == ()
    assert list(result.analyses.predicted) == ["none"]


def test_a_report_draws_all_of_it(spherefed: Result) -> None:
    fedavg = run(load_experiment("digits-fedavg", None, SMALL), 0, analyses=True).result
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
