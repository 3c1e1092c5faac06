"""A whole pilot, in separate processes."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

from client_sdk import Result
from tests.support.cli import Cli, CliConsortium
from veilsum.cli.commands import pilot
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.processes import DemoError
from veilsum.cli.features import read_table
from veilsum.cli.head_table import EXACT_RIDGE, NOISY
from veilsum.cli.round_view import record_values
from veilsum.cli.tables import Table, TableFormat
from veilsum.protocol.study import Content


@pytest.mark.parametrize(
    "keys", [np.arange(3), np.array(["no", "perhaps", "yes"]), np.array([0.0, 1.0, np.nan])]
)
def test_each_member_is_dealt_its_share_of_every_class(keys: np.ndarray, tmp_path: Path) -> None:
    labels = np.repeat(keys, (10, 7, 30))
    np.savez(tmp_path / "a.npz", features=np.arange(94.0).reshape(47, 2), labels=labels)
    dealt = pilot.deal_tables([read_table(tmp_path / "a.npz")], 3)
    assert sorted(row for table in dealt for row in table.features[:, 0]) == list(range(0, 94, 2))
    for key in keys.astype(str):
        held = [np.count_nonzero(table.labels.astype(str) == key) for table in dealt]
        assert max(held) - min(held) <= 1


def test_a_study_that_names_its_columns_takes_them_from_each_table_by_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a pilot read arrays, which have no names."""
    rng, given = np.random.default_rng(0), list[Table]()

    def stops(_folder: Folder, _content: object, tables: list[Table], *_: object) -> None:
        given[:] = tables
        raise DemoError("enough")

    monkeypatch.setattr(pilot, "run_pilot", stops)
    names = ("age", "ldh")
    for member, order in enumerate(((0, 1), (1, 0), (0, 1))):
        rows = np.column_stack([rng.normal([10, 1000], 1, (90, 2))[:, order], np.arange(90) % 2])
        header = ",".join([*(names[place] for place in order), "label"])
        np.savetxt(tmp_path / f"{member}.csv", rows, "%g", ",", header=header, comments="")
    files = [tmp_path / f"{member}.csv" for member in range(3)]
    words = ("pilot", *files, "--output", tmp_path / "pilot")
    assert cli(*words).error == "enough"
    assert all(table.features.mean(axis=0).round(-1).tolist() == [10, 1000] for table in given)
    draft = tmp_path / "named.toml"
    text = (tmp_path / "pilot/study.toml").read_text("utf-8")
    draft.write_text(text.replace("[question]\n", '[question]\ncolumns = ["ldh", "age"]\n'), "utf-8")
    assert cli(*words, "--study", draft).error == "enough"
    assert all(table.features.mean(axis=0).round(-1).tolist() == [1000, 10] for table in given)


def test_an_id_is_dealt_to_one_member(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 20, 90)
    table = np.column_stack([np.ones((90, 2), int), ids % 2, ids])
    np.savetxt(tmp_path / "a.csv", table, "%d", ",", header="f,g,label,patient", comments="")
    found = pilot.deal_tables([read_table(tmp_path / "a.csv", TableFormat("patient"))], 3)
    dealt = [{*map(int, table.ids)} for table in found if table.ids is not None]
    assert sorted(each for held in dealt for each in held) == sorted({*ids.tolist()})
    assert {table.features.shape[1] for table in found} == {2}


@pytest.mark.parametrize("keep", [False, True])
def test_a_pilot_that_fails_keeps_copies_of_the_records_only_if_asked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
    def fails(folder: Folder, *_: object) -> None:
        folder.member_folder("m").mkdir(parents=True)
        folder.features_file("m").touch()
        raise DemoError("ended")

    monkeypatch.setattr(pilot, "run_pilot", fails)
    words = ("pilot", "--members", 3, "--output", tmp_path / "pilot", *(["--keep"] if keep else []))
    assert cli(*words).error == "ended"
    assert (tmp_path / "pilot/study.toml").exists()
    assert bool(list(tmp_path.rglob("features.npz"))) == keep


def test_a_draft_that_a_pilot_wrote_is_tried_with_its_changes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def stops(_folder: Folder, content: Content, *_: object) -> None:
        tried.append(content.notes.name)
        raise DemoError("enough")

    monkeypatch.setattr(pilot, "run_pilot", stops)
    words, draft = ("pilot", "--members", 3, "--output", tmp_path / "pilot"), tmp_path / "pilot/study.toml"
    assert cli(*words).error == "enough"
    draft.write_text(draft.read_text("utf-8").replace('name = "pilot"', 'name = "second"'), "utf-8")
    for _ in range(2):
        assert cli(*words, "--study", draft).error == "enough"
    assert tried == ["pilot", "second", "second"]


def test_a_pilot_compares_heads_on_hold_out_records(cli: Cli, tmp_path: Path) -> None:
    """With tabular features, standardised by moments that the study names as its extractor."""
    wine, moments = load_wine(), tmp_path / "moments.safetensors"
    rows = np.random.default_rng(0).permutation(len(wine.target))
    np.savez(tmp_path / "wine.npz", features=wine.data[rows], labels=wine.target[rows])
    words = ("pilot", tmp_path / "wine.npz", "--members", 3, "--output", tmp_path / "pilot")
    found = cli.json(*words, "--standardise", moments)
    assert found["hold_out_records"] + found["record"]["rows"] == len(wine.target)
    assert found["consortium_accuracy"] > 0.75  # of some 35 records, other ones each time
    assert 0 < found["own_accuracy"] <= 1
    assert [*found["heads"]] == ["ridge", "ridge, unit columns", "LDA", "LDA, equal priors"]
    assert found["heads"]["ridge"]["records"] == found["hold_out_records"]
    assert found["heads"]["ridge"]["accuracy"] == pytest.approx(found["consortium_accuracy"])
    assert found["largest_difference_from_a_fit_in_the_clear"] < 1e-6
    result = Result.load(tmp_path / "pilot/result")
    result.verify()
    assert record_values(result.record, ())["ridge"].endswith(", chosen by GCV")
    given = result.record.solution.model_copy(update={"chosen_by": "given"})
    assert record_values(result.record.model_copy(update={"solution": given}), ())["ridge"].endswith(
        ", given by the study"
    )
    assert result.judged is not None
    assert result.spec.question.extractor == hashlib.sha256(moments.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_noisy_pilot_warns_of_a_head_that_finds_no_positives(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = (np.arange(1200) % 33 == 0).astype(int)
    features = rng.standard_normal((1200, 6)) + 2 * np.outer(labels, np.eye(6)[0]) + np.eye(6)[1]
    np.savez(tmp_path / "rare.npz", features=features, labels=labels)
    words = (f"--name rare --extractor {'0' * 64}", "--dim 6 --class class-0 --class class-1")
    cli.json("admin", "study", "new", tmp_path / "study.toml", *words, "--members", 3)
    draft = (tmp_path / "study.toml").read_text("utf-8").replace('purpose = ""', 'purpose = "to try it"')
    (tmp_path / "study.toml").write_text(draft.replace('"mean+sum+16-gradients"', '"sum"'), "utf-8")
    pilot_words = ("pilot", tmp_path / "rare.npz", "--members", 3, "--study", tmp_path / "study.toml")
    found = cli.json(*pilot_words, "--output", tmp_path / "pilot")
    assert [*found["heads"]] == [NOISY, EXACT_RIDGE]
    assert found["heads"][NOISY]["accuracy"] == pytest.approx(found["consortium_accuracy"])
    assert found["heads"][NOISY]["balanced_accuracy"] < 0.6
    [rare] = found["rare"]
    assert rare["label"] == 1
    assert rare["threshold_recall"] > rare["recall"] + 0.3


def test_a_label_that_no_study_takes_for_a_class_is_named(cli: Cli, tmp_path: Path) -> None:
    labels = np.array(["klein", "größer"])[np.arange(60) % 2]
    np.savez(tmp_path / "a.npz", features=np.ones((60, 2)), labels=labels)
    said = cli("pilot", tmp_path / "a.npz", "--members", 3, "--output", tmp_path / "pilot").error
    assert re.match(r".*a\.npz: .*'größer'.*ASCII", said)
    assert "study.toml" not in said  # it was not written by hand


@pytest.mark.parametrize("unknown", [True, False])
def test_a_pilot_without_hold_out_records_says_so(
    cli: Cli, tmp_path: Path, held: CliConsortium, monkeypatch: pytest.MonkeyPatch, *, unknown: bool
) -> None:
    result = Result.load(held.result("m0"))
    values = (
        {}
        if unknown
        else {"hold_out_records": 9, "consortium_accuracy": 1.0, "consortium_balanced_accuracy": 1.0}
    )
    monkeypatch.setattr(pilot, "run_pilot", lambda *_: (result, values, None))
    said = cli("pilot", "--members", 3, "--output", tmp_path / "pilot")
    assert ("accuracy is unknown" in said.err) == unknown


@pytest.mark.parametrize("labels", [np.arange(60) % 2 - 2, np.full(60, np.nan), np.full(60, "")])
def test_a_pilot_says_before_it_starts_that_rows_are_unusable(
    cli: Cli, tmp_path: Path, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((60, 2)), labels=labels)
    said = cli("pilot", tmp_path / "a.npz", "--members", 3, "--output", tmp_path / "pilot").error
    assert re.search(r"member 1 .*\b0 rows|row 0 ", said)
