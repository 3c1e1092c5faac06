import os
from pathlib import Path
from typing import Any

import pytest

from research import reproduce_row
from research.results import read_result
from training.data import load_digits_dataset
from training.experiments import load_experiment, run
from training.hardware import CPU
from training.resume import RoundRecord

QUICK: dict[str, Any] = {
    "training": {"rounds": 3, "local_epochs": 1},
    "model": {"architecture": "mlp"},
    "deal": {"name": "iid", "members": 2},
    "data": {"train_records": 200},
    "calibrate": {"ffc": {}},
}
DIGITS = load_experiment("digits-fedavg", None, QUICK)


def test_the_rows_are_at_the_papers_own_rounds() -> None:
    for row, model in (("ccvr", "moon_cnn"), ("hundred-classes", "mobilenetv2")):
        fedavg, spherefed = reproduce_row.experiments(row, shortened=False)
        assert (fedavg.method, spherefed.method) == ("FedAvg", "SphereFed")
        for each in (fedavg, spherefed):
            assert (each.training.rounds, each.training.local_epochs) == (100, 10)
            assert each.deal == {"name": "dirichlet", "members": 10, "alpha": 0.1}
            assert each.model.architecture == model
            assert each.data.train_records is None
            assert each.scale == ""
    [short, _] = reproduce_row.experiments("hundred-classes", shortened=True)
    assert (short.training.rounds, short.training.local_epochs, short.data.train_records) == (8, 1, 6_000)
    assert short.scale


def test_the_rate_is_that_of_whole_batches() -> None:
    assert reproduce_row.images_per_s(DIGITS, load_digits_dataset(0), CPU) > 0


def test_processes_may_share_a_gpu_where_asked_to() -> None:
    assert reproduce_row.processes(4, "cuda") == reproduce_row.processes(4, "cpu") == 4
    assert reproduce_row.processes(None, "cuda") == 1
    assert reproduce_row.processes(None, "cpu") == os.cpu_count()


def test_a_run_is_finished_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        reproduce_row.finish(DIGITS, 0, tmp_path, None, 1, CPU)
    said = capsys.readouterr().out.splitlines()
    assert [" round " in line for line in said] == [True] * 3 + [False] * 2
    [file] = tmp_path.rglob("*.*")
    assert said[-1].endswith(f"{file} is there")
    assert read_result(file).experiment == "digits-fedavg"


def test_a_resumed_run_counts_the_rounds_before_it_and_no_processor(tmp_path: Path) -> None:
    def stop(record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt

    snapshot = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(DIGITS, 0, snapshot=snapshot, progress=stop)
    resumed = run(DIGITS, 0, snapshot=snapshot).result
    whole = run(DIGITS, 0).result
    again = run(DIGITS, 0, snapshot=snapshot).result  # nothing was left to train
    assert resumed.accuracy == whole.accuracy == again.accuracy
    assert resumed.cost.cpu_s is None
    assert whole.cost.cpu_s is not None
    for each in (resumed, again):
        assert each.cost.wall_s > sum(line.seconds for line in each.history)
