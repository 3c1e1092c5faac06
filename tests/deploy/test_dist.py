"""What `make dist` needs to go through: it is run for releases only, and rots in silence."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dist import NOT_A_MEMBER_S, SUITE

ROOT = Path(__file__).parents[2]
INSTALLED = {"cryptography", "httpx", "numpy", "pydantic", "safetensors", "typer"}
FOR_THE_SUITE = {"coverage", "hypothesis", "pytest", "scipy", "sklearn"}
PACKAGES = {"client_sdk", "veilsum"}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file needs to be imported at all."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def test_the_wheel_s_suite_imports_only_what_is_installed_beside_the_wheel() -> None:
    left_out = tuple(str(ROOT / name) for name in NOT_A_MEMBER_S)
    files = [path for name in SUITE for path in sorted((ROOT / name).rglob("*.py"))]
    waiting = [
        ROOT / "conftest.py",
        *(each for each in files if not str(each).startswith(left_out)),
    ]
    known = INSTALLED | FOR_THE_SUITE | PACKAGES | sys.stdlib_module_names
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for module in imported(path):
            if module.startswith(("assurance.", "tests.")):
                helper = (ROOT / module.replace(".", "/")).with_suffix(".py")
                waiting += [helper] if helper.is_file() and helper not in seen else []
            else:
                assert module.split(".")[0] in known, f"{path.relative_to(ROOT)} imports {module}"
    assert len(seen) > 50
