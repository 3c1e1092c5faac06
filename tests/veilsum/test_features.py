import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from protocol.errors import Misuse
from tests.veilsum.cli import Cli
from veilsum.features import checked_features, read_features

Z, Y = np.eye(3, dtype=np.float32), np.array([0, 2, 1])
Write = Callable[[Path], None]


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    parquet.write_table(pa.table(columns), path)


def columns(**more: Any) -> dict[str, Any]:
    return {**{f"f{i}": Z[:, i] for i in range(3)}, **more}


def write_csv(path: Path) -> None:
    """As a spreadsheet writes it: with a byte order mark, and the label somewhere."""
    rows = (f"{a},{y},{b},{c}\n" for (a, b, c), y in zip(Z, Y, strict=True))
    path.write_text("\ufefff0,label,f1,f2\n" + "".join(rows), "utf-8")


FORMS: dict[str, Write] = {
    "npz": lambda p: np.savez(p, features=Z, labels=Y, ids=np.array([object()])),
    "safetensors": lambda p: save_file({"features": Z, "labels": Y, "other": Y}, p),
    "parquet": lambda p: write_parquet(p, columns(label=Y)),
    "npy": lambda p: np.save(p, Z),
    "csv": write_csv,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, tmp_path: Path) -> None:
    path, labels = tmp_path / f"x.{form}", tmp_path / "y.npy"
    FORMS[form](path)
    np.save(labels, Y)
    features, y = read_features(path, labels if form == "npy" else None)
    np.testing.assert_array_equal(features, Z)
    np.testing.assert_array_equal(y, Y)
    if form != "npy":
        with pytest.raises(Misuse, match="leave out --labels"):
            read_features(path, labels)


def test_features_alone_take_labels_from_an_npy(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=Z)
    np.save(tmp_path / "y.npy", Y)
    assert read_features(tmp_path / "x.npz", tmp_path / "y.npy")[1].shape == (3,)


def test_parquet_with_a_list_of_numbers_for_each_record(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for values in (pa.array(Z.tolist()), pa.FixedSizeListArray.from_arrays(Z.ravel(), 3)):
        write_parquet(path, {"features": values, "label": Y})
        features, y = read_features(path)
        np.testing.assert_array_equal(features, Z)
        np.testing.assert_array_equal(y, Y)
    write_parquet(path, {"features": values})
    with pytest.raises(Misuse, match="has no labels: it holds features"):
        read_features(path)


def raw(content: bytes) -> Write:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def npz(**arrays: Any) -> Write:
    return lambda path: np.savez(path, **arrays)


def tensors(path: Path, **types: str) -> None:
    """Features of twos and labels of zeros, in types that numpy may not have, as torch writes them."""
    header, content = {}, b""
    for name, kind in types.items():
        one = {"BF16": b"\x00\x40", "F8_E4M3": b"\x40", "I8": b"\0"}[kind]
        shape = [3, 2] if name == "features" else [3]
        data = one * int(np.prod(shape))
        offsets = [len(content), len(content) + len(data)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        content += data
    packed = json.dumps(header).encode()
    path.write_bytes(len(packed).to_bytes(8, "little") + packed + content)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    tensors(tmp_path / "x.safetensors", labels="I8", features="BF16")
    features, labels = checked_features(tmp_path / "x.safetensors", normalise=True)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, np.full((3, 2), 2.0))
    np.testing.assert_array_equal(labels, np.zeros(3))


def pandas(index: list[Any], **more: Any) -> Write:
    """A table of pandas, as its own files say which columns were the index."""
    about = json.dumps({"index_columns": index, "columns": [], "pandas_version": "2"})
    table = pa.table(columns(label=Y, **more)).replace_schema_metadata({"pandas": about})
    return lambda path: parquet.write_table(table, path)


def test_labels_may_have_been_a_data_frame_s_index(tmp_path: Path) -> None:
    pandas(["label", {"kind": "range"}])(tmp_path / "x.parquet")
    assert read_features(tmp_path / "x.parquet")[0].shape == (3, 3)


def truncated(path: Path) -> None:
    np.savez_compressed(path, features=np.zeros((50, 3)), labels=np.zeros(50, int))
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)


BAD: dict[str, tuple[str, Write, str]] = {
    "no such form": ("txt", raw(b"1,2"), "is not one of .npz, .npy, .safetensors, .parquet, .csv"),
    "a folder": ("npz", Path.mkdir, "does not exist, or is not a file"),
    "npz without labels": ("npz", npz(features=Z, y=Y), "has no labels: it holds features, y"),
    "npz without features": ("npz", npz(labels=Y), "has no features: it holds labels"),
    "npz of nothing": ("npz", npz(), "has no features and no labels: it holds nothing"),
    "npz with pickles": ("npz", npz(features=np.array([{}]), labels=Y), "Object arrays cannot be loaded"),
    "npz that is empty": ("npz", raw(b""), "is not an .npz archive"),
    "npz that is a pickle": ("npz", raw(b"\x80\x04."), "is not an .npz archive"),
    "npz that is damaged": ("npz", truncated, "is not a readable .npz"),
    "npy without labels": ("npy", lambda p: np.save(p, Z), "pass --labels FILE.npy"),
    "npy that is empty": ("npy", raw(b""), "is not a readable .npy"),
    "npy that is a pickle": ("npy", raw(b"\x80\x04."), "magic string"),
    "npy of objects": ("npy", lambda p: np.save(p, np.array([{}])), "Object arrays cannot be loaded"),
    "safetensors that are none": ("safetensors", raw(b"junk"), "is not a readable .safetensors"),
    "safetensors of float8": (
        "safetensors",
        lambda p: tensors(p, features="F8_E4M3", labels="BF16"),
        "holds features of F8_E4M3: read are F16, BF16, F32, F64, I8",
    ),
    "safetensors with labels of bfloat16": (
        "safetensors",
        lambda p: tensors(p, features="BF16", labels="BF16"),
        "labels are float32",
    ),
    "safetensors with other names": ("safetensors", lambda p: save_file({"x": Z}, p), "it holds x"),
    "parquet that is none": ("parquet", raw(b"PAR1"), "is not a readable .parquet"),
    "parquet without label": (
        "parquet",
        lambda p: write_parquet(p, columns()),
        "has no labels: it holds f0, f1, f2",
    ),
    "parquet of a label": ("parquet", lambda p: write_parquet(p, {"label": Y}), "has no features"),
    "parquet of text": (
        "parquet",
        lambda p: write_parquet(p, columns(label=Y, name=["a", "b", "c"])),
        "no numbers in column name",
    ),
    "parquet of lists": (
        "parquet",
        lambda p: write_parquet(p, {"z": Z.tolist(), "label": Y}),
        "a feature is a column of its own",
    ),
    "parquet with gaps": (
        "parquet",
        lambda p: write_parquet(p, columns(label=[0, None, 1])),
        "labels are float64",
    ),
    "parquet with an index": (
        "parquet",
        lambda p: write_parquet(p, columns(label=Y, __index_level_0__=Y)),
        "column '__index_level_0__' is a data frame's index and no feature: write the file with index=False",
    ),
    "parquet with a named index": ("parquet", pandas(["id"], id=Y), "column 'id' is a data frame's index"),
    "parquet with a name twice": (
        "parquet",
        lambda p: parquet.write_table(
            pa.Table.from_arrays([*map(pa.array, (Z[0], Z[1], Y))], ["a", "a", "label"]), p
        ),
        "has several columns of the name a: give each its own",
    ),
    "parquet of lists with more beside": (
        "parquet",
        lambda p: write_parquet(p, {"id": Y, "features": Z.tolist(), "age": Y, "label": Y}),
        "column age, id stands beside the lists in `features`",
    ),
    "parquet of lists of several lengths": (
        "parquet",
        lambda p: write_parquet(p, {"features": [[1.0], [1.0, 2.0], [1.0]], "label": Y}),
        "all input arrays must have the same shape",
    ),
    "csv of nothing": ("csv", raw(b""), "is empty: its first line names the columns"),
    "csv of a header": ("csv", raw(b"a,label\n"), "holds no records, only the names of 2 columns"),
    "csv with a name twice": ("csv", raw(b"a,a,label\n1.0,2.0,0\n"), "has several columns of the name a"),
    "csv with an index": (
        "csv",
        raw(b",a,label\n0,1.0,0\n"),
        "column '' is a data frame's index and no feature",
    ),
    "csv with an index twice written": (
        "csv",
        raw(b"Unnamed: 0,a,label\n0,1.0,0\n"),
        "is a data frame's index",
    ),
    "csv that is ragged": ("csv", raw(b"a,label\n1.0,1\n1.0\n"), "line 3 has not the 2 columns of the first"),
    "csv of text": (
        "csv",
        raw(b"a,label\n1.0,1\none,1\n"),
        "'one' in line 3, column a, is no number: mend it, or leave the column out at all members",
    ),
    "csv with labels in words": (
        "csv",
        raw(b"a,label\n1.0,0\n1.0,cat\n"),
        "'cat' in line 3, column label, is no class index: write whole numbers from 0",
    ),
    "csv with a label beyond all": (
        "csv",
        raw(b"a,label\n1.0,99999999999999999999\n"),
        "'99999999999999999999' in line 2, column label, is no class index",
    ),
    "one row": ("npz", npz(features=Z[0], labels=Y), "features have shape (3,), not (n, dim)"),
    "a number": ("npz", npz(features=np.float32(1), labels=Y), "features have shape (), not (n, dim)"),
    "no columns": ("npz", npz(features=Z[:, :0], labels=Y), "features have shape (3, 0)"),
    "no records": ("npz", npz(features=Z[:0], labels=Y[:0]), "holds no records"),
    "a label": ("npz", npz(features=Z, labels=1), "labels have shape () for 3 records"),
    "too few labels": ("npz", npz(features=Z, labels=Y[:2]), "labels have shape (2,) for 3 records"),
    "labels in a column": ("npz", npz(features=Z, labels=Y[:, None]), "pass labels.ravel()"),
    "one-hot labels": ("npz", npz(features=Z, labels=np.eye(3, dtype=int)), "labels have shape (3, 3)"),
    "labels as text": ("npz", npz(features=Z, labels=np.array(["a", "b", "c"])), "labels are <U1"),
    "labels as floats": ("npz", npz(features=Z, labels=Y * 1.0), "labels are float64"),
    "a negative label": ("npz", npz(features=Z, labels=Y - 1), "-1 in row 0"),
    "a huge label": ("npz", npz(features=Z, labels=Y + 10**9), "3 of 3 labels lie outside 0…65534"),
    "features as integers": ("npz", npz(features=Z.astype(int), labels=Y), "features are int64"),
    "NaN": ("npz", npz(features=np.where(Z > 0, np.nan, 0.0), labels=Y), "rows 0, 1, 2 hold NaN or infinity"),
    "not of length 1": ("npz", npz(features=3 * Z, labels=Y), "pass --normalise"),
    "zero": ("npz", npz(features=0 * Z, labels=Y), "have no direction"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_told_in_one_line(case: str, cli: Cli) -> None:
    suffix, write, expected = BAD[case]
    path = cli.folder / f"x.{suffix}"
    write(path)
    words = ("calibrate", path, "--output", cli.folder / "head.safetensors")
    error = cli(*words).error
    assert error.startswith(str(path))
    assert expected in error
    assert not (cli.folder / "head.safetensors").exists()
    refused = cli(*words, "--json")
    assert refused.code == 1
    assert refused.values == {"error": error, "cause": None}
    assert refused.err == ""


@pytest.mark.parametrize("content", [None, b"", b"junk"])
def test_bad_labels(content: bytes | None, cli: Cli) -> None:
    np.save("x.npy", Z)
    if content is not None:
        Path("y.npy").write_bytes(content)
    assert cli("calibrate", "x.npy", "--labels", "y.npy").error.startswith("y.npy ")


def test_other_lengths_with_normalise(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=3 * Z, labels=Y)
    features, _ = checked_features(tmp_path / "x.npz", normalise=True)
    np.testing.assert_array_equal(features, 3 * Z)
