import importlib.util
from pathlib import Path
from typing import Any

import pytest

from training.experiments.config import load_experiment
from training.experiments.running import run_experiment
from training.results import RunResult
from training.resume import RoundRecord
from training.tracking import TRACKERS, TrackingError, open_trackers, round_measures, run_outcomes

RECORD = RoundRecord(round=3, rounds=5, lr=0.1, local_loss=0.5, test_loss=0.4, accuracy=0.75, seconds=2.0)


@pytest.fixture(scope="module")
def result() -> RunResult:
    changes = {
        "training": {"rounds": 1, "local_epochs": 1},
        "model": {"architecture": "mlp"},
        "calibrate": {"rff": {"size": 16}},
    }
    return run_experiment(load_experiment("digits-spherefed", None, changes), 5).result


def test_what_there_is_to_draw(result: RunResult) -> None:
    assert round_measures(RECORD) == {
        "accuracy": 0.75,
        "loss/local": 0.5,
        "loss/test": 0.4,
        "learning rate": 0.1,
        "seconds a round": 2.0,
    }
    assert run_outcomes(result)["final/accuracy"] == result.accuracy
    assert run_outcomes(result)["final/after ffc"] == result.accuracy_after("ffc")


def test_a_tracker_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(TrackingError, match="no tracker is called 'x'; there are tensorboard, mlflow"),
        open_trackers(["x"], tmp_path, ""),
    ):
        pass

    def absent(folder: Path, title: str) -> Any:
        raise ImportError

    monkeypatch.setitem(TRACKERS, "tensorboard", absent)
    with (
        pytest.raises(TrackingError, match=r"pip install 'veilsum\[tracking\]'"),
        open_trackers(["tensorboard"], tmp_path, ""),
    ):
        pass


def told(name: str, folder: Path, result: RunResult) -> None:
    with open_trackers([name], folder, "digits seed 5") as (tracker,):
        tracker.log_round(RECORD)
        tracker.log_result(result)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="an extra")
def test_tensorboard_has_a_point_a_round(tmp_path: Path, result: RunResult) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    told("tensorboard", tmp_path, result)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [(3, 0.75)]
    assert events.Scalars("final/accuracy")[0].value == pytest.approx(result.accuracy)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="an extra")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_runs_in_a_file_of_the_run_s_folder(
    tmp_path: Path, result: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow  # noqa: PLC0415

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told("mlflow", tmp_path, result)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    found = client.get_experiment_by_name("digits")
    assert found is not None
    [kept] = client.search_runs([found.experiment_id])
    assert kept.data.metrics["final/accuracy"] == result.accuracy


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="an extra")
@pytest.mark.filterwarnings("ignore")
def test_a_store_that_mlflow_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://x")
    with (
        pytest.raises(TrackingError, match="can't keep runs in the store of MLFLOW_TRACKING_URI: "),
        open_trackers(["mlflow"], tmp_path, "digits seed 5"),
    ):
        pass
