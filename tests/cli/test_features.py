import gzip
import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from safetensors.numpy import save_file
from sklearn.datasets import load_wine

from tests.support.cli import Cli
from tests.texts.tables import BAD, Write, Y, Z, calibrate, columns, raw, write_parquet
from veilsum.cli.features import class_keys, read_records, read_table
from veilsum.cli.moments import Moments, moments_in
from veilsum.cli.read_report import ReadReport
from veilsum.cli.tables import Table, TableFormat
from veilsum.protocol.errors import Misuse


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_in_one_line_without_its_records(
    case: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says stands in tests/texts."""
    monkeypatch.chdir(cli.folder)
    Moments(np.zeros(2), np.ones(2)).save_moments(Path("moments.safetensors"))
    refused = calibrate(cli, case, "--json")
    error = refused.values["error"]
    assert refused.values == {"error": error, "cause": None}
    assert (refused.code, refused.err) == (1, "")
    assert "Jane" not in error
    assert not Path("head.safetensors").exists()


def write_csv(path: Path) -> None:
    """Write a CSV file like a spreadsheet: with a byte order mark, and the label in any column."""
    rows = (f"{a},{y},{b},{c}\n" for (a, b, c), y in zip(Z, Y, strict=True))
    path.write_text("\ufefff0,label,f1,f2\n" + "".join(rows), "utf-8")


def test_a_file_that_may_not_be_read_or_is_too_large_is_not_told_as_damaged(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = io.BytesIO()
    rows = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50, 8)}
    np.lib.format.write_array_header_2_0(header, rows)
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        archive.writestr("features.npy", header.getvalue())
    assert cli("calibrate", tmp_path / "large.npz").error.startswith("out of memory")

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    write_csv(tmp_path / "closed.csv")
    monkeypatch.setattr(Path, "open", refuse)
    assert cli("calibrate", tmp_path / "closed.csv").error == f"{tmp_path / 'closed.csv'}: Permission denied"


FORMS: dict[str, Write] = {
    "npz": lambda p: np.savez(p, features=Z, labels=Y, more=np.array([object()])),
    "safetensors": lambda p: save_file({"features": Z, "labels": Y, "other": Y}, p),
    "parquet": lambda p: write_parquet(p, columns(label=Y)),
    "csv": write_csv,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{form}"
    FORMS[form](path)
    found = read_table(path.rename(path.with_suffix(f".{form.title()}")))
    np.testing.assert_array_equal(found.features, Z)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.ids is None


IDS = np.array(["p1", "p2", "p1"])
WITH_IDS: dict[str, tuple[Write, str | None]] = {
    "npz": (lambda p: np.savez(p, features=Z, labels=Y, ids=IDS), None),
    "csv": (raw(b"id,f0,label,f1\np1,1,0,2\np2,3,2,4\np1,5,1,6\n"), None),
    "parquet": (lambda p: write_parquet(p, columns(label=Y, patient=IDS)), "patient"),
}


@pytest.mark.parametrize("form", WITH_IDS)
def test_ids(form: str, tmp_path: Path) -> None:
    write, column = WITH_IDS[form]
    path = tmp_path / f"x.{form}"
    write(path)
    found = read_table(path, TableFormat(id_column=column))
    assert found.ids is not None
    assert found.ids.tolist() == IDS.tolist()
    assert found.labels.tolist() == Y.tolist()
    assert found.features.shape[1] == (2 if form == "csv" else 3)


def test_labels_may_be_class_keys(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("label,f0\nbenign,1\nmalignant,2\n")
    assert read_table(path).labels.tolist() == ["benign", "malignant"]


def test_each_study_says_whether_a_whole_number_is_a_key_or_an_index(tmp_path: Path) -> None:
    """A member may have approved several studies; none of them changes how another's labels are read."""
    np.savez(tmp_path / "x.npz", features=Z, labels=[7.0, 1.0, np.nan])
    records = read_records(tmp_path / "x.npz")
    assert records.index_labels([f"class-{label}" for label in range(8)]).tolist() == [7, 1, -1]
    assert records.index_labels(["1", "7"]).tolist() == [1, 0, -1]
    assert records.index_labels(["a", "b"]).tolist() == [-1, 1, -1]
    np.savez(tmp_path / "x.npz", features=Z, labels=[-1, 1, 0])
    assert read_records(tmp_path / "x.npz").index_labels(["-1", "1"]).tolist() == [0, 1, -1]


KEYS = {
    "indices": (["no", "yes", "maybe"], [1, 0, 2, -1]),
    "numbers": (["10", "1", "0", "2"], [1, 2, 3, -1]),
    "padded": (["000", "001", "002"], [1, 0, 2, -1]),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize(
    "labels", [["1", "0", "2", ""], ["1.0", "0.0", "2.0", ""], [" 001", "000", "002 ", ""]]
)
@pytest.mark.parametrize("form", ["csv", "npz", "parquet"])
def test_a_label_is_the_same_class_however_its_file_writes_it(
    tmp_path: Path, form: str, labels: list[str], keys: str
) -> None:
    """A missing label affects only its own row."""
    path = tmp_path / f"x.{form}"
    match form:
        case "csv":
            path.write_text("label,f\n" + "".join(f"{label},1\n" for label in labels))
        case "npz":
            np.savez(path, features=np.ones((4, 1)), labels=labels)
        case _:
            write_parquet(path, {"label": [each or None for each in labels], "f": np.ones(4)})
    classes, expected = KEYS[keys]
    assert read_records(path).index_labels(classes).tolist() == expected


def test_a_category_that_is_missing_stays_missing(tmp_path: Path) -> None:
    """As pandas writes a categorical column."""
    path = tmp_path / "x.parquet"
    columns = {"label": ["a", None, "b"], "age": [5, 6, None]}
    write_parquet(path, {name: pa.array(values).dictionary_encode() for name, values in columns.items()})
    records = read_records(path)
    assert records.index_labels(["a", "b"]).tolist() == [0, -1, 1]
    assert np.isnan(records.features[2, 0])


@pytest.mark.parametrize("digits", [4301, 20])
def test_a_label_of_many_digits_is_refused_by_its_row(tmp_path: Path, digits: int) -> None:
    """Python reads no whole number of more than 4,300 digits."""
    path = tmp_path / "x.csv"
    path.write_text(f"label,f\n0,1\n{'1' * digits},2\n1,3\n")
    records = read_records(path)
    with pytest.raises(Misuse, match="row 1 "):
        class_keys([records])
    report = ReadReport.of_records("x.csv", records, ["class-0", "class-1"])
    assert sum(report.skipped.values()) == 1


def test_an_empty_cell_is_a_missing_number(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("label,f0,f1\n0,1,\n1,NA,2\n1,3,4\n")
    records = read_records(path)
    _, usable = records.find_usable_rows(["0", "1"])
    assert records.features[usable].tolist() == [[3, 4]]


def test_a_sign_for_a_missing_number_is_refused_with_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,label\n1,0\n?,1\n")
    with pytest.raises(Misuse, match=r"line 3, column a .*missing value empty"):
        read_table(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["Label", " label", "LABELS"])
def test_a_header_that_nearly_names_the_labels_is_refused_with_that_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.csv").write_text(f"a,{name}\n1,0\n")
    with pytest.raises(Misuse, match=f"{name!r}.*--label-column"):
        read_table(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize("text", ["", "\n", "\na,label\n1,0\n"])
def test_a_table_without_a_first_line_is_told_from_one_without_labels(
    tmp_path: Path, text: str, name: str
) -> None:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(Misuse, match="empty"):
        read_table(tmp_path / name)


def test_one_array_is_refused_with_how_to_write_all(tmp_path: Path) -> None:
    np.save(tmp_path / "features.npy", Z)
    with pytest.raises(Misuse, match=r"numpy\.savez"):
        read_table(tmp_path / "features.npy")


def test_a_label_with_an_underscore_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("label,f\n1_0,1\n2_1,1\n")
    records = read_records(path)
    assert class_keys([records]) == ["1_0", "2_1"]
    assert records.index_labels(["1_0", "2_1"]).tolist() == [0, 1]


def test_parquet_with_a_list_of_numbers_for_each_record(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for values in (pa.array(Z.tolist()), pa.FixedSizeListArray.from_arrays(Z.ravel(), 3)):
        write_parquet(path, {"features": values, "label": Y})
        found = read_table(path)
        np.testing.assert_array_equal(found.features, Z)
        np.testing.assert_array_equal(found.labels, Y)


@pytest.mark.parametrize(
    ("odd", "found"),
    [(None, "are missing"), ([], "are an empty list"), ([1.0], "have length 1, those of row 0 2")],
)
@pytest.mark.parametrize("place", [1, 4999])
def test_a_list_that_is_missing_or_of_another_length_is_refused_by_its_row(
    tmp_path: Path, place: int, odd: list[float] | None, found: str
) -> None:
    features: list[list[float] | None] = [[1.0, 2.0]] * 5000
    features[place] = odd
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2))[: 1 if odd is not None else 2]:
        write_parquet(tmp_path / "x.parquet", {"features": pa.array(features, kind), "label": ["a"] * 5000})
        with pytest.raises(Misuse, match=rf"features of row {place} \(counted from 0\) {found}"):
            read_table(tmp_path / "x.parquet")


def test_lists_that_are_empty_in_the_first_rows_are_refused(tmp_path: Path) -> None:
    features: list[list[float]] = [[]] * 3000 + [[1.0]] * 3000
    write_parquet(tmp_path / "x.parquet", {"features": features, "label": ["a"] * 6000})
    with pytest.raises(Misuse, match=r"row 0 .* empty list"):
        read_table(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 2], [1.0, np.nan], ["class-0", "class-1", "class-2"]),
        (["10", "2"], ["", "0"], [f"class-{index}" for index in range(11)]),
        (["yes", " no "], [1, 1], ["1", "no", "yes"]),
    ],
)
def test_classes_follow_from_the_labels_of_all_files(
    tmp_path: Path, first: list[Any], second: list[Any], expected: list[str]
) -> None:
    for name, labels in (("a", first), ("b", second)):
        np.savez(tmp_path / f"{name}.npz", features=np.ones((2, 1)), labels=labels)
    assert class_keys([read_records(tmp_path / f"{name}.npz") for name in "ab"]) == expected


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "A.B.CSV", "A.CSV.GZ"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_common_delimiter_and_gzip_are_read(tmp_path: Path, name: str, delimiter: str) -> None:
    text = "a b;label;id\n0.5;1;x\n0.25;0;y\n".replace(";", delimiter).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.lower().endswith(".gz") else text)
    table = read_table(path)
    assert (table.features.tolist(), table.labels.tolist()) == ([[0.5], [0.25]], [1, 0])
    assert table.ids is not None
    assert table.ids.tolist() == ["x", "y"]


def test_blank_lines_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,label\n0.5,1\n\n0.25,0\n\n\n")
    assert read_table(path).features.tolist() == [[0.5], [0.25]]


NO_IDS = {
    "dates": np.array(["2026-11-01", "2026-11-02", "2026-11-03"], "datetime64[s]"),
    "nanoseconds": np.array([5e17, 6e17, 7e17]).astype("datetime64[ns]"),
    "durations": np.arange(3).astype("timedelta64[ns]"),
    "fractions": np.array([1.5, 2.0, 3.0]),
    "truths": np.array([True, False, True]),
}


@pytest.mark.parametrize("kind", NO_IDS)
@pytest.mark.parametrize("form", ["npz", "parquet", "csv"])
def test_ids_follow_one_rule_in_every_format(tmp_path: Path, form: str, kind: str) -> None:
    """Text files have no types: a column that as a whole reads as dates holds dates. Durations are numbers there."""

    def write(ids: Any) -> Path:
        match form:
            case "npz":
                np.savez(tmp_path / "x.npz", features=Z, labels=Y, ids=ids)
            case "parquet":
                write_parquet(tmp_path / "x.parquet", columns(label=Y, id=ids))
            case _:
                rows = (f"{a},{y},{each}\n" for (a, *_), y, each in zip(Z, Y, ids, strict=True))
                (tmp_path / "x.csv").write_text("f,label,id\n" + "".join(rows))
        return tmp_path / f"x.{form}"

    if (form, kind) != ("csv", "durations"):
        with pytest.raises(Misuse, match="ids"):
            read_records(write(NO_IDS[kind]))
    assert read_records(write(np.array(["2026-11-01", "7.0", "x"]))).keys == (b"2026-11-01", b"7", b"x")
    assert read_records(write(np.array([7, 8, 9]))).keys == (b"7", b"8", b"9")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_labels_may_have_a_column_of_any_name(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    if form == "csv":
        path.write_text("f0,diagnosis,patient\n0.5,yes,p1\n0.25,no,p2\n")
    else:
        write_parquet(path, {"f0": [0.5, 0.25], "diagnosis": ["yes", "no"], "patient": ["p1", "p2"]})
    table = read_table(path, TableFormat("patient", "diagnosis"))
    assert (table.features.tolist(), table.labels.tolist()) == ([[0.5], [0.25]], ["yes", "no"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_file_of_an_older_spreadsheet_is_read_with_its_options(tmp_path: Path, name: str) -> None:
    """With decimal commas, and in the encoding of Windows."""
    text = "größe;Übel;label\n1,5;-2,25e1;gutartig\n;3;bösartig\n".encode("cp1252")
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    table = read_table(path, TableFormat(encoding="cp1252", decimal_comma=True))
    np.testing.assert_array_equal(table.features, [[1.5, -22.5], [np.nan, 3]])
    assert table.labels.tolist() == ["gutartig", "bösartig"]
    assert table.columns == ("größe", "Übel")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("lines", [3, 30_000])
def test_a_line_that_its_encoding_does_not_have_is_counted_in_that_encoding(
    tmp_path: Path, lines: int, name: str
) -> None:
    """In UTF-16 the bytes of a line break also stand within other letters, such as U+0A00 and U+010A."""
    rows = "0,\u010a\u0a03\n" * (lines - 1)
    for content in (
        f"a,label\n{rows}0,".encode("utf-16") + b"\x00\xd8,\x00\n\x00",  # half of a pair
        f"a,label\n{rows}0,".encode("utf-16") + b"b",  # half of a letter
    ):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        with pytest.raises(Misuse, match=f": line {lines + 1} isn't utf-16"):
            read_table(tmp_path / name, TableFormat(encoding="utf-16"))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet", "lists"])
def test_a_table_takes_little_more_memory_than_its_features(tmp_path: Path, form: str) -> None:
    """Peak beyond the libraries, in a process of its own."""
    rows, width = 60_000, 128
    values = np.random.default_rng(0).normal(size=(rows, width)).round(6)
    path = tmp_path / f"x.{'csv' if form == 'csv' else 'parquet'}"
    named = {f"f{place}": values[:, place] for place in range(width)}
    match form:
        case "csv":
            arrow_csv.write_csv(pa.table({**named, "label": np.arange(rows) % 3}), path)
        case "parquet":
            write_parquet(path, {**named, "label": np.arange(rows) % 3})
        case _:
            lists = pa.FixedSizeListArray.from_arrays(values.ravel(), width)
            write_parquet(path, {"features": lists, "label": np.arange(rows) % 3})
    script = (
        "import sys; from pathlib import Path; import pyarrow.csv, pyarrow.parquet, pyarrow.compute\n"
        "from veilsum.cli.features import read_records\n"
        # A child's maxrss begins at its parent's.
        "peak = lambda: int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
        "before = peak(); found = read_records(Path(sys.argv[1])); print((peak() - before) * 1024 / found.features.nbytes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True, timeout=120
    )
    assert float(done.stdout) < 3


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.safetensors", "a.parquet"])
@pytest.mark.parametrize("line", ["Jane,0.25,-1", "0.25,0.25,1", "Jane,0.25,-1\nJohn,0.5,1"])
def test_no_value_of_a_file_of_another_form_is_in_an_error(tmp_path: Path, name: str, line: str) -> None:
    path = tmp_path / name
    path.write_text(f"{line}\n")
    with pytest.raises(Misuse) as refused:
        read_table(path)
    assert not [value for value in ("Ja", "0.2") if value in str(refused.value).replace(str(path), "")]


def made(features: np.ndarray, *names: str) -> Table:
    return Table(features, np.zeros(len(features), int), None, names)


_HALF_HEADER = b'{"mean":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
HALF_PRECISION = struct.pack("<Q", len(_HALF_HEADER)) + _HALF_HEADER + bytes(2)
"""A file of safetensors in a type that numpy lacks."""


def test_moments_standardise_and_survive_the_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(5, 2, 200), rng.normal(-1, 1000, 200), np.full(200, 0.1)])
    features[0] = np.nan
    moments = moments_in(tmp_path / "moments.safetensors", [made(features[:100]), made(features[100:])])
    found = moments.standardise_features(features)[1:]
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), [1, 1, 0], atol=1e-12)
    assert (moments.mean[2], moments.scale[2]) == (0.1, 1)
    again = moments_in(tmp_path / "moments.safetensors", [made(2 * features)])
    np.testing.assert_array_equal(again.mean, moments.mean)
    with pytest.raises(Misuse, match=r"\b3\b"):
        moments.standardise_features(features[:, :2])
    with pytest.raises(Misuse):
        moments_in(tmp_path / "other", [made(features), made(features[:, :2])])
    with pytest.raises(Misuse, match="NaN"):
        Moments.of_features(np.full((2, 2), np.nan))
    save_file({"mean": np.zeros(2), "scale": np.array([1.0, 0.0])}, tmp_path / "moments.safetensors")
    with pytest.raises(Misuse, match="scale"):
        Moments.load_moments(tmp_path / "moments.safetensors")
    with pytest.raises(Misuse):
        Moments.load_moments(tmp_path / "missing")
    (tmp_path / "half").write_bytes(HALF_PRECISION)
    with pytest.raises(Misuse, match="half"):
        Moments.load_moments(tmp_path / "half")


def test_calibrate_standardises_tabular_features(cli: Cli) -> None:
    wine = load_wine()
    np.savez("wine.npz", features=wine.data, labels=wine.target)
    words = ("calibrate", "wine.npz", "--held-out 0.3 --output head.safetensors")
    plain = cli.json(*words)["accuracy"]
    standardised = cli.json(*words, "--standardise moments.safetensors")["accuracy"]
    assert standardised > max(plain, 0.95)
    assert Moments.load_moments(Path("moments.safetensors")).mean.shape == (13,)
