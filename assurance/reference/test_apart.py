"""Neither the second implementation nor a tool that is built on it imports the product."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
ALL = ("wire", "mlkem", "study", "records", "judging", "heads", "reference", "coordinator", "replay")
USERS = ("vectors.stranger", "recording.keys", "recording.open", "recording.recorded")
LIBRARIES = {
    "argparse", "collections", "contextlib", "cryptography", "dataclasses", "fractions", "functools", "gzip", "hashlib", "hmac",
    "io", "itertools", "json", "math", "numpy", "operator", "pathlib", "re", "struct", "types", "typing", "unicodedata", "zipfile",
}  # fmt: skip


def test_it_runs_no_line_of_the_first() -> None:
    imported, users = set(), [HERE.parent / f"{name.replace('.', '/')}.py" for name in USERS]
    for path in (*(HERE / f"{name}.py" for name in ALL), *users):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
    own = {
        "assurance.reference",
        *(f"assurance.reference.{each}" for each in ALL),
        *(f"assurance.{each}" for each in USERS),
    }
    assert {name.split(".")[0] for name in imported - own} <= LIBRARIES
