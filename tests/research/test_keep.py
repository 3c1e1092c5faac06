from pathlib import Path

import pytest

from research.keep import keep
from research.report import cells, markdown
from research.results import ResultError, read_result, read_results, shortened
from training.results import write_result

from .conftest import Make


def test_what_is_kept_is_small_and_reported_alike(make: Make, tmp_path: Path) -> None:
    run = make(accuracy=1 / 3)
    uneven = run.history[1].model_copy(
        update={"local_loss": 1.6151743973050854, "test_loss": None, "seconds": 4.08861220599}
    )
    run = run.model_copy(update={"history": (run.history[0], uneven, *run.history[2:])})
    write_result(run, tmp_path / "runs" / "a" / "seed-0.json")
    (tmp_path / "runs" / "other.json").write_text("{}")
    copied, size = keep(tmp_path / "runs", tmp_path / "kept")
    kept = tmp_path / "kept" / "a" / "seed-0.json"
    assert (copied, size) == (1, kept.stat().st_size)
    assert size < (tmp_path / "runs" / "a" / "seed-0.json").stat().st_size / 1.5
    line = read_result(kept).history[1]
    assert (line.local_loss, line.test_loss, line.seconds) == (1.61517, None, 4.089)
    assert line.accuracy == run.history[1].accuracy
    assert read_result(kept) == shortened(run)
    assert markdown(cells(read_results([tmp_path / "kept"]))) == markdown(cells([run]))


def test_another_run_s_file_is_not_replaced_and_its_own_is(make: Make, tmp_path: Path) -> None:
    write_result(make(), tmp_path / "runs" / "run.json")
    keep(tmp_path / "runs", tmp_path / "kept")
    keep(tmp_path / "runs", tmp_path / "kept")
    write_result(make(seed=1), tmp_path / "runs" / "run.json")
    with pytest.raises(ResultError, match="is ccvr-fedavg under seed 0; choose another folder"):
        keep(tmp_path / "runs", tmp_path / "kept")


def test_runs_at_other_settings_are_not_kept_as_seeds_of_one_experiment(make: Make, tmp_path: Path) -> None:
    write_result(make(recipe={"lr": 0.01}), tmp_path / "runs" / "a" / "seed-0.json")
    keep(tmp_path / "runs", tmp_path / "kept")
    write_result(make(seed=1, recipe={"lr": 0.1}), tmp_path / "later" / "a" / "seed-1.json")
    with pytest.raises(ResultError, match=r"seed-1\.json is ccvr-fedavg at other settings than seed-0\.json"):
        keep(tmp_path / "later", tmp_path / "kept")
    assert [file.name for file in (tmp_path / "kept" / "a").iterdir()] == ["seed-0.json"]
    write_result(make(seed=1, recipe={"lr": 0.01, "new": None}), tmp_path / "later" / "a" / "seed-1.json")
    assert keep(tmp_path / "later", tmp_path / "kept")[0] == 1
    write_result(make(recipe={"lr": 0.1}), tmp_path / "again" / "a" / "seed-0.json")
    write_result(make(seed=1, recipe={"lr": 0.1}), tmp_path / "again" / "a" / "seed-1.json")
    assert keep(tmp_path / "again", tmp_path / "kept")[0] == 2  # the whole folder anew
