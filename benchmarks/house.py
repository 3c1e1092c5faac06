"""The product's size and structure: lines, importers, cycles, and class names that occur twice.

An import inside a function or under TYPE_CHECKING makes no cycle, because Python doesn't run it when it imports the module.

    .venv/bin/python -m benchmarks.house --output runs/house.json
"""

import argparse
import ast
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from benchmarks.entered import walked

ROOT = Path(__file__).parents[1]
PACKAGES = ("client_sdk", "service", "training", "veilsum")
LINES_MAX = 50_000
SHORT_LINES = 40
"""A module with one importer and fewer lines belongs in its importer."""


def modules() -> dict[str, Path]:
    """Return every module of the product by its name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: set[str], *, at_once: bool) -> Iterator[str]:
    """Yield the modules that a module imports; with `at_once`, only those imported together with it."""
    for node in ast.iter_child_nodes(tree):
        if at_once and (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types(node)):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (each for each in (name if name in known else node.module,) if each in known)
        yield from imported(node, known, at_once=at_once)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return a path from a module back to itself, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def measured() -> dict[str, Any]:
    """Return every figure."""
    paths = modules()
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in paths.items()}
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in paths.items()}
    by_package: Counter[str] = Counter()
    importers: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        by_package[name.partition(".")[0]] += lines[name]
        for other in imported(tree, set(paths), at_once=False):
            importers[other].add(name)
    classes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    return {
        "lines": sum(lines.values()),
        "lines_by_package": dict(by_package),
        "modules": len(paths),
        "largest": dict(Counter(lines).most_common(10)),
        "short_with_one_importer": {
            name: next(iter(importers[name]))
            for name, path in paths.items()
            if len(importers[name]) == 1 and lines[name] < SHORT_LINES and path.name != "__init__.py"
        },
        "most_imported": {
            name: len(found) for name, found in sorted(importers.items(), key=lambda each: -len(each[1]))[:10]
        },
        "cycle": cycle(
            {name: set(imported(tree, set(paths), at_once=True)) - {name} for name, tree in trees.items()}
        ),
        "classes_that_stand_twice": {
            name: places for name, places in sorted(classes.items()) if len(places) > 1
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/house.json")
    given = parser.parse_args()
    found = {**measured(), **walked()}
    print(f"{found['lines']:,} lines in {found['modules']} modules, at most {LINES_MAX:,} lines")
    print(json.dumps(found, indent=1))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["lines"] > LINES_MAX:
        sys.exit("house: the product is larger than it may be")


if __name__ == "__main__":
    main()
