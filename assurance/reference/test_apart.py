"""The second implementation, and the stranger that uses it, share no line with the first."""

import ast
from pathlib import Path

from assurance.vectors import stranger

HERE = Path(__file__).parent
ALL = ("wire", "mlkem", "study", "records", "judging", "heads", "reference", "coordinator", "replay")
LIBRARIES = {
    "collections", "contextlib", "cryptography", "fractions", "functools", "hashlib", "hmac", "io", "itertools", "json", "math",
    "numpy", "operator", "pathlib", "re", "struct", "types", "typing", "unicodedata", "zipfile",
}  # fmt: skip


def test_it_runs_no_line_of_the_first() -> None:
    imported = set()
    for path in (*(HERE / f"{name}.py" for name in ALL), Path(stranger.__file__)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
    own = {"assurance.reference", *(f"assurance.reference.{each}" for each in ALL)}
    assert {name.split(".")[0] for name in imported - own} <= LIBRARIES
