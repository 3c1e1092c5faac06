"""Files of features that no command reads, and the options with which one might have tried."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors.numpy import save_file

from tests.support.cli import Cli

Z, Y = np.eye(3, dtype=np.float32), np.array([0, 2, 1])
Write = Callable[[Path], object]


def columns(**more: Any) -> dict[str, Any]:
    return {**{f"f{i}": Z[:, i] for i in range(3)}, **more}


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    parquet.write_table(pa.table(columns), path)


def raw(content: bytes | str) -> Write:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def npz(**arrays: Any) -> Write:
    return lambda path: np.savez(path, **arrays)


def table(**given: Any) -> Write:
    return lambda path: write_parquet(path, given)


def tensors(path: Path, **types: str) -> None:
    """Make features of twos and labels of zeros as torch writes them, possibly in types that numpy lacks."""
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


def pandas(index: list[Any], **more: Any) -> Write:
    """Make a table as pandas does, whose file records the index columns."""
    about = json.dumps({"index_columns": index, "columns": [], "pandas_version": "2"})
    made = pa.table(columns(label=Y, **more)).replace_schema_metadata({"pandas": about})
    return lambda path: parquet.write_table(made, path)


def truncated(path: Path) -> None:
    np.savez_compressed(path, features=np.zeros((50, 3)), labels=np.zeros(50, int))
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)


def with_a_name_twice(path: Path) -> None:
    parquet.write_table(pa.Table.from_arrays([*map(pa.array, (Z[0], Z[1], Y))], ["a", "a", "label"]), path)


NUMBERED = "nr,a,label\n" + "".join(f"{20 + row},{row % 3},{row % 2}\n" for row in range(12))
DATES = np.array(["2026-11-01", "2026-11-02", "2026-11-03"], "datetime64[s]")
CATEGORY = pa.array(["p1", "p2", None]).dictionary_encode()
OLD = "größe;label\n1,5;0\n;1\n".encode("cp1252")
"""Of an older spreadsheet: with decimal commas, in the encoding of Windows."""
NAMED = "f0,diagnosis,patient\n0.5,yes,p1\n0.25,no,p2\n"

# fmt: off
# The table is easier to read with one row to a line.
BAD: dict[str, tuple[str, Write, str]] = {
    "no such form": ("txt", raw("1,2"), ""),
    "a folder": ("npz", Path.mkdir, ""),
    "a loop of links": ("npz", lambda p: p.symlink_to(p), ""),
    "npz without labels": ("npz", npz(features=Z, y=Y), ""),
    "npz without features": ("npz", npz(labels=Y), ""),
    "npz of nothing": ("npz", npz(), ""),
    "npz with pickles": ("npz", npz(features=np.array([{}]), labels=Y), ""),
    "npz that is empty": ("npz", raw(""), ""),
    "npz that is a pickle": ("npz", raw(b"\x80\x04."), ""),
    "npz that is damaged": ("npz", truncated, ""),
    "npz of text": ("npz", npz(features=[["Jane", "1"], ["2", "3"]], labels=[0, 1]), ""),
    "npz of text, to be standardised": ("npz", npz(features=[["Jane", "1"], ["2", "3"]], labels=[0, 1]), "--standardise moments.safetensors"),
    "npz with the name of a column": ("npz", npz(features=Z, labels=Y), "--label-column diagnosis"),
    "npz with commas": ("npz", npz(features=Z, labels=Y), "--decimal-comma"),
    "npz of dates for ids": ("npz", npz(features=Z, labels=Y, ids=DATES), ""),
    "safetensors that are none": ("safetensors", raw("junk"), ""),
    "safetensors of float8": ("safetensors", lambda p: tensors(p, features="F8_E4M3", labels="BF16"), ""),
    "safetensors with other names": ("safetensors", lambda p: save_file({"x": Z}, p), ""),
    "parquet that is none": ("parquet", raw("PAR1"), ""),
    "parquet without label": ("parquet", table(**columns()), ""),
    "parquet without the label that was named": ("parquet", table(**columns(label=Y)), "--label-column diagnosis"),
    "parquet of a label": ("parquet", table(label=Y), ""),
    "parquet of text": ("parquet", table(**columns(label=Y, name=["Jane", "b", "c"])), ""),
    "parquet of lists under another name": ("parquet", table(z=Z.tolist(), label=Y), ""),
    "parquet of lists of text": ("parquet", table(features=[["Jane"], ["2"], ["3"]], label=Y), ""),
    "parquet with an index": ("parquet", table(**columns(label=Y, __index_level_0__=Y)), ""),
    "parquet with a named index": ("parquet", pandas(["row"], row=Y), ""),
    "parquet with a name twice": ("parquet", with_a_name_twice, ""),
    "parquet of lists with more beside": ("parquet", table(id=Y, features=Z.tolist(), age=Y, label=Y), ""),
    "parquet of lists of several lengths": ("parquet", table(features=[[1.0], [1.0, 2.0], [1.0]], label=Y), ""),
    "parquet with a missing list": ("parquet", table(features=[[1.0], None, [1.0]], label=Y), ""),
    "parquet with several labels": ("parquet", table(**columns(label=[["a"], ["a", "b"], []])), ""),
    "parquet with a missing id": ("parquet", table(label=Y, age=Y, id=CATEGORY), ""),
    "csv of nothing": ("csv", raw(""), ""),
    "csv of blank lines": ("csv", raw("\n\n"), ""),
    "csv of a label in capitals": ("csv", raw("a,LABEL\n1.0,0\n"), ""),
    "csv of a header": ("csv", raw("a,label\n"), ""),
    "csv with a name twice": ("csv", raw("a,a,label\n1.0,2.0,0\n"), ""),
    "csv with an index": ("csv", raw(",a,label\n0,1.0,0\n"), ""),
    "csv with an index twice written": ("csv", raw("Unnamed: 0,a,label\n0,1.0,0\n"), ""),
    "csv with a column index": ("csv", raw("index,a,label\n5,1.0,0\n7,2.0,1\n"), ""),
    "csv that numbers its rows": ("csv", raw(NUMBERED), ""),
    "csv of labels alone": ("csv", raw("label\n1\n"), ""),
    "csv with two columns of labels": ("csv", raw("a,Label,label\n1.0,1,1\n"), ""),
    "csv with ids of another name": ("csv", raw("ids,a,label\n7,1.0,1\n"), ""),
    "csv without the label that was named": ("csv", raw(NAMED), "--id-column patient"),
    "csv without the id that was named": ("csv", raw(NAMED), "--label-column diagnosis --id-column nowhere"),
    "csv with one column for both": ("csv", raw(NAMED), "--label-column patient --id-column patient"),
    "csv with an underscore in a number": ("csv", raw("a,label\n1_0,1\n"), ""),
    "csv in another encoding": ("csv", raw(OLD), ""),
    "csv in another encoding, from line 3 on": ("csv", raw(b"a,label\n1,no\n2,b\xf6se\n"), ""),
    "csv that isn't in this encoding": ("csv", raw(b"a,label\n1,no\n2,\x81\n"), "--encoding cp1252"),
    "csv in no encoding": ("csv", raw(OLD), "--encoding no-such"),
    "csv with commas": ("csv", raw(OLD), "--encoding cp1252"),
    "csv without commas": ("csv", raw("a;label\n1.5;0\n"), "--decimal-comma"),
    "csv that is ragged": ("csv", raw('a,label\n0.5,"two\nlines"\n\n1\n'), ""),
    "csv of text": ("csv", raw('a,label\n0.5,"two\nlines"\n\nJane,1\n'), ""),
    "csv with one class": ("csv", raw("a,label\n1.0,cat\n1.0,cat\n"), ""),
    "csv with labels that are not whole": ("csv", raw("a,label\n1.0,0.5\n1.0,1\n"), ""),
    "csv with a label beyond all": ("csv", raw("a,label\n1.0,99999999999999999999\n"), ""),
    "one row": ("npz", npz(features=Z[0], labels=Y), ""),
    "a number": ("npz", npz(features=np.float32(1), labels=Y), ""),
    "no columns": ("npz", npz(features=Z[:, :0], labels=Y), ""),
    "no records": ("npz", npz(features=Z[:0], labels=Y[:0]), ""),
    "a label": ("npz", npz(features=Z, labels=1), ""),
    "too few labels": ("npz", npz(features=Z, labels=Y[:2]), ""),
    "labels in a column": ("npz", npz(features=Z, labels=Y[:, None]), ""),
    "labels in a row": ("npz", npz(features=Z, labels=Y[None]), ""),
    "one-hot labels": ("npz", npz(features=Z, labels=np.eye(3, dtype=int)), ""),
    "labels that are missing": ("npz", npz(features=Z, labels=np.full(3, np.nan)), ""),
    "a negative label": ("npz", npz(features=Z, labels=Y - 1), ""),
    "a huge label": ("npz", npz(features=Z, labels=Y + 10**9), ""),
    "NaN": ("npz", npz(features=np.where(Z > 0, np.nan, 0.0), labels=Y), ""),
    "zero": ("npz", npz(features=0 * Z, labels=Y), ""),
}
"""The form, what writes the file, and options. A row that names a person names Jane, who must be in no error."""
# fmt: on


def calibrate(cli: Cli, case: str, *more: str) -> Any:
    """Fit a head to the file, as `x` in this folder, and return what the command says."""
    form, write, options = BAD[case]
    path = Path(f"x.{form}")
    write(path)
    try:
        return cli("calibrate", path, *options.split(), "--output", "head.safetensors", *more)
    finally:
        path.rmdir() if path.is_dir() else path.unlink()


def explain_tables(cli: Cli) -> Iterator[str]:
    for case, (_, _, options) in BAD.items():
        yield f"- {case}{options and f' ({options})'}: {calibrate(cli, case).error}"
