from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from research import analyse
from research import keep as keeping
from research.keep import keep
from research.report import cells, markdown
from research.results import LONG_RUN, AnalysedResult, ResultError, read_result, read_results, shortened, task
from tests.support import digits
from training.results import write_result

from .conftest import Make


def result() -> AnalysedResult:
    return AnalysedResult(**digits.result().model_dump())


def test_runs_share_a_task_where_nothing_but_the_seed_differs() -> None:
    one = result()
    other = one.model_copy(
        update={
            "seed": 1,
            "recipe": one.recipe | {"seed": 1, "of_a_later_version": None},
            "deal": one.deal.model_copy(update={"digest": "f" * 64, "moved": 3}),
            "data": one.data.model_copy(update={"train_records": 100}),
        }
    )
    assert task(one) == task(other)
    changes: list[dict[str, Any]] = [
        {"experiment": "other"},
        {"scale": "with training.lr=0.05"},
        {"recipe": one.recipe | {"lr": 0.05}},
        {"deal": one.deal.model_copy(update={"options": {"members": 4}})},
        {"data": one.data.model_copy(update={"note": "JPEG"})},
        {"data": one.data.model_copy(update={"available": 100})},
    ]
    assert len({task(one.model_copy(update=change)) for change in changes} | {task(one)}) == 7


def test_a_folder_is_read_by_experiment_and_seed_whatever_lies_beside(tmp_path: Path) -> None:
    one = result()
    each: dict[str, dict[str, Any]] = {"c": {"seed": 1}, "a": {"experiment": "z"}, "b/b": {"seed": 0}}
    for name, changes in each.items():
        write_result(one.model_copy(update=changes), tmp_path / f"{name}.json")
    (tmp_path / "other.json").write_text('{"format": "else"}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    read = read_results([tmp_path])
    assert [(run.experiment, run.seed) for run in read] == [("digits", 0), ("digits", 1), ("z", 0)]
    assert read_results([tmp_path / "a.json"])[0].experiment == "z"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "Invalid JSON"),
        (b"\xff\xfe", "it is no text"),
        (b'{"format": "veilsum/result/2"}', "format: Input should be 'veilsum/result/1'"),
        (b'{"experiment": 3}', "experiment: Input should be a valid string"),
    ],
)
def test_a_file_without_a_result_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ResultError, match=rf"run\.json holds no result: {reason}"):
        read_results([path])


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


def test_a_long_run_is_kept_by_its_evaluated_rounds_and_reported_alike(make: Make) -> None:
    line = make().history[0]
    rounds = [
        line.model_copy(update={"round": i, "accuracy": None if i % 25 else i / 1000})
        for i in range(1, LONG_RUN + 801)
    ]
    run = make(experiment="fedetf-fedavg", history=rounds)
    short = shortened(run)
    assert [line.round for line in short.history] == list(range(25, 1001, 25))
    [whole], [cell] = cells([run]), cells([short])
    assert cell.averaged == whole.averaged == 50
    assert cell.comparisons[0].ours.mean == pytest.approx(100 * (0.975 + 1) / 2)
    assert cell.comparisons == whole.comparisons


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
    assert keep(tmp_path / "again", tmp_path / "kept")[0] == 2  # the whole folder again


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (keeping.main, ["missing", "kept"]),
        (keeping.main, [__file__, "kept"]),
        (analyse.main, ["no-such-experiment", "--output", "out"]),
        (analyse.main, ["digits-spherefed", "--device", "abacus", "--output", "out"]),
        (analyse.main, ["digits-spherefed", "--workers", "0", "--output", "out"]),
        (analyse.main, ["digits-spherefed", "--seed", "-1", "--output", "out"]),
        (analyse.main, ["digits-spherefed", "--output", __file__]),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    main: Callable[[], int],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["research", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]
