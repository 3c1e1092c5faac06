import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk import Result
from veilsum.export.tracking import log_to_mlflow, log_to_tensorboard, result_figures, run_facts


def test_a_result_in_an_mlflow_run(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its database wants the whole of mlflow
    shown = replace(result, document_files={"pooled": b"V, U and counts"}, material_file=b"means")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, at its import
        mlflow = pytest.importorskip("mlflow", reason="the extra veilsum[tracking] is not installed")
        mlflow.set_tracking_uri(tmp_path.joinpath("runs").as_uri())
        with mlflow.start_run() as run:
            log_to_mlflow(shown, accuracy=0.875)
        with mlflow.start_run() as inside:
            log_to_mlflow(shown, for_members=True)
        logged = mlflow.get_run(run.info.run_id)
        names, all_names = (
            {each.path for each in mlflow.MlflowClient().list_artifacts(each_run.info.run_id, "veilsum")}
            for each_run in (run, inside)
        )
    assert logged.data.params["veilsum.round"] == result.record.round
    assert logged.data.params["veilsum.withheld"] == "none"
    assert logged.data.metrics["veilsum.survivors"] == 3
    assert logged.data.metrics["veilsum.accuracy"] == 0.875
    assert {"veilsum/record.json", "veilsum/weights.safetensors"} <= names
    assert not [name for name in names if "key" in name]
    assert all_names - names == {"veilsum/pooled.document.safetensors", "veilsum/material.bin"}


def test_a_result_on_a_tensorboard(result: Result, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, at its import
        tensorboard = pytest.importorskip(
            "torch.utils.tensorboard", reason="the extra veilsum[tracking] is not installed"
        )
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

        with tensorboard.SummaryWriter(str(tmp_path)) as writer:
            log_to_tensorboard(result, writer, 7, accuracy=0.875)
        events = EventAccumulator(str(tmp_path)).Reload()
    assert {f"veilsum/{name}" for name in (*result_figures(result), "accuracy")} == set(
        events.Tags()["scalars"]
    )
    [event] = events.Scalars("veilsum/rows")
    assert (event.step, event.value) == (7, result.record.rows)
    [text] = events.Tensors("veilsum/round/text_summary")
    assert run_facts(result)["round"].encode() in text.tensor_proto.string_val[0]
