from pathlib import Path

import numpy as np
import pytest

from tests.support.digits import DIGITS, result
from training import results
from training.partition import Partition
from training.results import Data, Line, Machine, RunResult, write_result


def test_members_accuracies_are_the_classes_in_the_shares_of_their_records() -> None:
    counts = [[3, 1, 0], [0, 0, 5], [0, 4, 4], *[[1, 0, 0]] * 9]
    one = result().model_copy(update={"per_class": (0.8, 0.4, None)})
    one = one.model_copy(update={"deal": one.deal.model_copy(update={"label_counts": counts})})
    np.testing.assert_allclose(one.by_member(), [0.7, np.nan, 0.4, *[0.8] * 9])
    assert one.worst_decile() == pytest.approx((0.4 + 0.7) / 2)  # of eleven members
    assert one.by_member("ffc") == ()
    assert one.worst_decile("ffc") is one.worst_decile("none of them") is None


def test_classes_that_only_the_test_records_have_count_for_no_member() -> None:
    one = result().model_copy(update={"per_class": (0.8, 0.4, 0.1)})
    one = one.model_copy(update={"deal": one.deal.model_copy(update={"label_counts": [[3, 1], [0, 2]]})})
    np.testing.assert_allclose(one.by_member(), [0.7, 0.4])


def test_records_are_counted_once_however_many_hold_them_and_what_nobody_trains_on_is_not() -> None:
    data = DIGITS
    overlapping = Partition.of([np.array([0, 1, 2]), np.array([2, 3])], data.train.y.numpy())
    told = Data.describe_split(data, overlapping)
    assert (told.train_records, told.available, told.records) == (4, 1347, 1347)
    earlier = told.model_copy(update={"train_records": 1347, "available": None})
    assert earlier.records == 1347


def test_an_accuracy_by_the_name_of_its_head() -> None:
    one = result()
    assert one.accuracy_after("none") == one.accuracy == one.history[-1].accuracy
    assert one.accuracy_after("ffc") == 0.75
    assert one.accuracy_after("ccvr") is None


def test_a_processor_has_a_name_where_the_kernel_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "Path", lambda _: Path("/nowhere"))
    assert Machine.describe_machine().processor


def test_a_file_holds_what_was_written_and_null_for_what_is_not_finite(tmp_path: Path) -> None:
    one = result()
    diverged = Line(**(one.history[0].model_dump() | {"local_loss": float("nan"), "test_loss": float("inf")}))
    written = one.model_copy(update={"history": (diverged,)})
    write_result(written, tmp_path / "deep" / "run.json")
    read = RunResult.model_validate_json((tmp_path / "deep" / "run.json").read_text())
    assert read == written
    assert (read.history[0].local_loss, read.history[0].test_loss) == (None, None)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run.json"]
