"""What a command says about the files that it read."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli

ADMIN_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def write_table(labels: list[str], *more: str) -> Path:
    """Write a table of two features and ids, with a row for each label, and more rows."""
    values = np.random.default_rng(0).normal(size=(len(labels), 2))
    rows = (f"{a},{b},p{row},{label}" for row, ((a, b), label) in enumerate(zip(values, labels, strict=True)))
    Path("a.csv").write_text("\n".join(["age,ldh,id,label", *rows, *more]))
    return Path("a.csv")


def test_what_was_read_is_said_before_anything_is_done(cli: Cli) -> None:
    path = write_table(["no", "yes"] * 20, "1,2,p0,", "1,,p50,no", "0,0,p51,yes", "inf,0,p52,yes")
    expected = {
        "file": "a.csv",
        "rows": 44,
        "features": 2,
        "columns": ["age", "ldh"],
        "ids": 43,
        "classes": {"no": 20, "yes": 20},
        "skipped": {"without a label": 1, "with NaN, infinity or an empty cell": 2, "all zeros": 1},
        "hints": [],
        "canaries": 0,
    }
    done = cli("calibrate", path, "--held-out", 0.3, "--json")
    assert done.values["read"] == [expected]
    assert "a.csv: " not in done.err
    failed = cli("calibrate", path, "--held-out", 0.0001)
    assert failed.code == 1
    first = failed.err.splitlines()[0]
    for part in ("44 rows", "(age, ldh)", "43 ids", "no 20, yes 20", "skipped 4 (1 without a label, "):
        assert part in first
    cli.json("member new", "m", "--member m")
    marked = cli.json("member mark-summed", "m", path, "--admin-key", ADMIN_KEY)
    assert marked["read"] == [{**expected, "classes": {}, "skipped": {}}]


def test_a_column_of_numbers_that_may_be_ids_is_named(cli: Cli) -> None:
    def read_hints(header: str) -> list[str]:
        rows = (
            f"{10_007 + 3 * row % 97},{row % 7},{row / 3},{'no' if row % 2 else 'yes'}" for row in range(40)
        )
        Path("a.csv").write_text("\n".join([header, *rows]))
        hints: list[str] = cli.json("calibrate", "a.csv")["read"][0]["hints"]
        return hints

    [hint] = read_hints("patient,age,ldh,label")
    assert ("'patient'" in hint, "--id-column" in hint) == (True, True)
    assert read_hints("id,age,ldh,label") == []


HINTS: dict[str, tuple[list[str], str]] = {
    "codes": (["3", "17", "99"], r"\b0 .*\b99: .*code-99"),
    "case": (["malignant", "Malignant", "no"], "'Malignant', 'malignant' "),
    "white space": (["no tumour", "no  tumour", "yes"], "'no  tumour', 'no tumour' "),
    "several by a bar": (["a", "b", "a|b"], r"10 rows .*'\|'"),
    "several by a comma": (["oedema", "effusion", '"oedema, effusion"'], "10 rows .*','"),
    "a name with a comma": (["carcinoma", '"carcinoma, NOS"', "none"], ""),
    "numbered from 1": (["1", "2", "3"], "class-0 .* 1 less"),
    "indices": (["0", "1", "3"], ""),
}


@pytest.mark.parametrize("case", HINTS)
def test_labels_that_look_like_a_mistake_are_hinted_at(cli: Cli, case: str) -> None:
    labels, hint = HINTS[case]
    [read] = cli.json("calibrate", write_table(labels * 10), "--held-out", 0.3)["read"]
    assert len(read["hints"]) == bool(hint)
    if hint:
        assert re.search(hint, read["hints"][0])
        assert f"Hint: a.csv: {read['hints'][0]}" in cli("calibrate", "a.csv", "--held-out", 0.3).err


def test_a_file_without_the_first_class_is_not_taken_for_one_that_counts_from_1(cli: Cli) -> None:
    write_table(["0", "1", "2"] * 10).rename("b.csv")
    found = cli.json("calibrate", write_table(["1", "2"] * 10), "b.csv")["read"]
    assert [each["hints"] for each in found] == [[], []]


def test_one_row_says_nothing_about_its_column_of_classes(cli: Cli) -> None:
    write_table(["no", "yes"] * 10).rename("b.csv")
    [read, _] = cli.json("calibrate", write_table(["yes"]), "b.csv")["read"]
    assert (read["classes"], read["hints"]) == ({"yes": 1}, [])


def test_labels_that_are_values_of_records_are_not_shown(cli: Cli) -> None:
    outcome = cli("calibrate", write_table(["no", *(f"Jane Doe {row}" for row in range(40))]))
    assert "Jane" not in outcome.err


@pytest.mark.parametrize("labels", [["0", "1.5", "1"], ["0", "1", "-2"]])
def test_labels_that_are_no_indices_are_refused_by_row(cli: Cli, labels: list[Any]) -> None:
    place = next(row for row, label in enumerate(labels) if label not in {"0", "1"})
    error = cli("calibrate", write_table(labels)).error
    assert f"row {place} (counted from 0)" in error
    assert labels[place] not in error
