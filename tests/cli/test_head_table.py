"""Heads that follow from the same sums, beside each other on hold-out records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.cli.head_table import BALANCED_LDA, RIDGE, HeadTable, derive_heads

FROM_SUMS = [RIDGE, "ridge, unit columns", "LDA", BALANCED_LDA]


def rare_positives(share: float, rows: int = 3000) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = (rng.random(rows) < share).astype(int)
    return rng.standard_normal((rows, 8)) + 1.5 * np.outer(labels, np.eye(8)[0]) + np.eye(8)[1], labels


def write_records(features: Any, labels: Any) -> Path:
    np.savez("a.npz", features=features, labels=labels)
    return Path("a.npz")


def test_positives_that_ridge_never_answers_are_named_with_what_finds_them(cli: Cli) -> None:
    path = write_records(*rare_positives(0.03))
    done = cli("calibrate", path, "--held-out", 0.3)
    assert "--prior uniform" in done.err
    found = cli.json("calibrate", path, "--held-out", 0.3)
    heads, [rare] = found["heads"], found["rare"]
    assert [*heads] == FROM_SUMS
    assert (rare["label"], rare["recall"]) == (1, 0)
    assert rare["threshold_recall"] > 0.5 > rare["false_alarms"]
    assert heads[RIDGE]["accuracy"] == found["accuracy"]
    assert heads[RIDGE]["balanced_accuracy"] == 0.5
    assert heads[BALANCED_LDA]["balanced_accuracy"] > 0.7
    assert heads[BALANCED_LDA]["detection"]["auroc"] == pytest.approx(heads["LDA"]["detection"]["auroc"])


def test_a_class_has_its_own_name_in_the_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with underscores, and with brackets, which are markup to rich."""
    monkeypatch.setenv("COLUMNS", "200")
    features, labels = rare_positives(0.5, 300)
    keys = np.array(["grade_1", "grade_2 [/late]"])[labels]
    said = cli("calibrate", write_records(features, keys), "--held-out", 0.3).out
    for name in (
        "recall of grade_1",
        "recall of grade_2 [/late]",
        "AUROC of grade_2 [/late]",
        "balanced accuracy",
    ):
        assert name in said


def test_a_recall_of_few_records_is_named_and_its_advice_is_no_certainty(cli: Cli) -> None:
    path = write_records(*rare_positives(0.01, 1500))
    words = ("calibrate", path, "--held-out", 0.2)
    [rare] = cli.json(*words)["rare"]
    said = cli(*words).err
    assert rare["positives"] < 10
    assert f"class-1 ({rare['positives']})" in said
    assert "more records, use" in said
    assert "chosen on these" in said
    many = cli("calibrate", write_records(*rare_positives(0.09, 5000)), "--held-out", 0.3).err
    assert "--prior uniform" in many
    assert "class-1 (" not in many


def test_where_every_class_is_common_nothing_is_advised(cli: Cli) -> None:
    path = write_records(*rare_positives(0.5, 300))
    done = cli("calibrate", path, "--held-out", 0.3)
    assert "--prior" not in done.err
    assert cli.json("calibrate", path, "--held-out", 0.3)["rare"] == []


def test_a_head_or_shares_that_are_asked_for_stand_beside_the_others(cli: Cli) -> None:
    path = write_records(*rare_positives(0.5, 300))
    words = ("calibrate", path, "--held-out", 0.3)
    found = cli.json(*words, "--head", "random-features")
    assert [*found["heads"]] == [*FROM_SUMS, "random features"]
    assert found["heads"]["random features"]["accuracy"] == found["accuracy"]
    np.savetxt("shares.txt", [0.9, 0.1])
    assert [*cli.json(*words, "--prior", "shares.txt")["heads"]] == [*FROM_SUMS, "LDA, chosen priors"]
    assert "heads" not in cli.json("calibrate", path)


def test_equal_priors_asked_for_give_the_head_that_the_table_shows(cli: Cli) -> None:
    path = write_records(*rare_positives(0.05))
    words = ("calibrate", path, "--held-out", 0.3, "--head", "lda")
    plain, even = cli.json(*words), cli.json(*words, "--prior", "uniform")
    assert even["accuracy"] == even["heads"][BALANCED_LDA]["accuracy"] < plain["accuracy"]
    assert even["temperature"] == plain["temperature"]


def test_the_class_that_is_named_is_the_one_that_is_detected(cli: Cli) -> None:
    features, labels = rare_positives(0.3, 600)
    path = write_records(features, np.where(labels, "sick", np.where(features[:, 1] > 1, "well", "other")))
    words = ("calibrate", path, "--held-out", 0.3)
    assert "detection" not in cli.json(*words)["heads"][RIDGE]
    for place, name in enumerate(("other", "sick")):
        assert cli.json(*words, "--positive", name)["heads"][RIDGE]["detection"]["label"] == place
    assert "no such class" in cli(*words, "--positive", "ill").error
    assert "pass --held-out" in cli(*words[:2], "--positive", "sick").error


def test_records_of_classes_without_rows_in_the_sums_are_left_out() -> None:
    features, labels = rare_positives(0.5, 300)
    statistics = FFCStatistics(8, 3, normalise=True)
    statistics.update(features, labels)
    heads = derive_heads(statistics, solve_ffc(statistics))
    table = HeadTable.of_heads(heads, features, np.where(np.arange(300) < 10, 2, labels), "abc", None)
    assert table is not None
    assert {(each.records, each.unanswered) for each in table.judged.values()} == {(290, 10)}
    assert HeadTable.of_heads(heads, features, np.full(300, 2), "abc", None) is None


def test_a_class_that_ridge_never_answers_is_found_among_many() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 3000, p=[0.35, 0.33, 0.3, 0.02])
    features = rng.standard_normal((3000, 8)) + 1.2 * np.eye(4, 8)[labels]
    statistics = FFCStatistics(8, 4, constant=True, normalise=True)
    statistics.update(features, labels)
    heads = derive_heads(statistics, solve_ffc(statistics))
    table = HeadTable.of_heads(heads, features, labels, "abcd", None)
    assert table is not None
    assert [each.label for each in table.rare] == [3]
    assert table.judged[BALANCED_LDA].recalls[3].recall > 0.4
