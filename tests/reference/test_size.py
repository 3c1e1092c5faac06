"""The second implementation stays small, and apart: whoever reads it reads the page once more, in Python."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
MEMBER = ("wire", "study", "reference")
"""What a member needs."""
ALL = (*MEMBER, "coordinator")


def tree(module: str) -> ast.Module:
    return ast.parse((HERE / f"{module}.py").read_text("utf-8"))


def code(module: str) -> int:
    """Lines that hold code: none of blanks, comments and docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [
        node.body[0] for node in ast.walk(tree(module)) if isinstance(node, documented) and ast.get_docstring(node)
    ]
    described = {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}
    lines = enumerate((HERE / f"{module}.py").read_text("utf-8").splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in described for at, line in lines)


def lines(modules: tuple[str, ...]) -> int:
    """All of them, blank ones too."""
    return sum(len((HERE / f"{name}.py").read_text("utf-8").splitlines()) for name in modules)


def test_it_is_small() -> None:
    assert sum(map(code, MEMBER)) <= 910
    assert sum(map(code, ALL)) <= 1130
    assert lines(MEMBER) <= 1145
    assert lines(ALL) <= 1405
    assert all(len(line) <= 120 for name in ALL for line in (HERE / f"{name}.py").read_text("utf-8").splitlines())


def test_it_runs_no_line_of_the_first() -> None:
    imported = set()
    for node in (node for name in ALL for node in ast.walk(tree(name))):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    apart = {"cryptography", "tests"}
    assert {name for name in imported if name.startswith("tests")} <= {
        "tests.reference",
        *(f"tests.reference.{each}" for each in ALL),
    }
    assert {name.split(".")[0] for name in imported} - apart <= {
        "collections", "contextlib", "fractions", "functools", "hashlib", "io", "itertools", "json", "math", "operator",
        "pathlib", "re", "struct", "types", "typing",
    }  # fmt: skip
