"""The product's size, structure and names, beside the goals for them.

A function is counted with its class's methods, but without properties and dunder methods. An import under TYPE_CHECKING is not
counted, because Python doesn't run it; one inside a function is.

    .venv/bin/python -m benchmarks.house --output runs/house.json
"""

import argparse
import ast
import json
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]

from benchmarks.entered import walked
from benchmarks.reports import write_findings

ROOT = Path(__file__).parents[1]
PACKAGES = ("client_sdk", "service", "training", "veilsum")
LINES_MAX = 50_000
SHORT_LINES = 40
"""A module with one importer and fewer lines belongs in its importer."""
CONVERSATION = ("client_sdk/agent.py", "client_sdk/conversation.py", "client_sdk/recounting.py")
"""The files that decide what a member does next."""
LAYOUT_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
PARTICIPLE = re.compile(
    r"(?!(?:embed|exceed|feed|need|seed|speed|bring|during|nothing|ring|string|thing)$)(?:[a-z]+(?:ed|ing)|"
    r"begun|bent|born|bound|broken|built|cast|caught|chosen|dealt|drawn|driven|fallen|felt|forgotten|found|frozen|given|gone|"
    r"grown|heard|held|hidden|kept|known|laid|led|left|lent|lit|lost|made|meant|met|overdue|paid|risen|said|seen|sent|shown|"
    r"shrunk|sold|spent|spoken|spun|stolen|sunk|sworn|taken|taught|thought|thrown|told|torn|understood|worn|wound|woven|"
    r"written)"
)


def modules() -> dict[str, Path]:
    """Return every module of the product by its name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports when it or its functions run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (each for each in (name if name in known else node.module,) if each in known)
        yield from imported(node, known)


def imports_upward(graph: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the imports of a higher or a parallel layer, for each contract about layers."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    found = {}
    for contract in linter["contracts"]:
        if contract["type"] != "layers":
            continue
        layers = [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]
        places = [
            (f"{container}.{package}.".lstrip("."), depth)
            for container in contract.get("containers", [""])
            for depth, layer in enumerate(layers)
            for package in layer
        ]

        def place(module: str, places: list[tuple[str, int]] = places) -> tuple[str, int]:
            return max((each for each in places if f"{module}.".startswith(each[0])), default=("", -1))

        found[contract["name"]] = [
            f"{importer} -> {other}"
            for importer, others in sorted(graph.items())
            for other in sorted(others)
            if place(importer)[0] != place(other)[0] and place(importer)[1] >= place(other)[1] >= 0
        ]
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other."""
    edges = nx.DiGraph([(name, other) for name, others in graph.items() for other in others])
    return [sorted(group) for group in nx.strongly_connected_components(edges) if len(group) > 1]


def tokens(path: Path) -> int:
    """Count the Python tokens of a module; a docstring is one, comments and layout are none."""
    with path.open("rb") as file:
        return sum(token.type not in LAYOUT_TOKENS for token in tokenize.tokenize(file.readline)) - 2


def is_participle(name: str) -> bool:
    return PARTICIPLE.fullmatch(name.strip("_").lower()) is not None


def function_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions and methods."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
            continue
        if not any("property" in ast.unparse(each) for each in node.decorator_list):
            yield node.name


def module_constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names and values of a module's constants, without type variables."""
    for node in tree.body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Name) and each.id.isupper() and len(each.id.strip("_")) > 1:
                    yield each.id, getattr(node, "value", None)


def largest_class(trees: Mapping[str, ast.Module]) -> dict[str, tuple[int, str]]:
    """Return the most attributes that one class sets on `self`, and the most methods that one defines."""
    attributes, methods = [], []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                stored = {
                    each.attr
                    for method in own
                    for each in ast.walk(method)
                    if isinstance(each, ast.Attribute)
                    if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
                }
                attributes.append((len(stored), f"{name}.{node.name}"))
                methods.append((len(own), f"{name}.{node.name}"))
    return {"attributes": max(attributes), "methods": max(methods)}


def measured() -> dict[str, Any]:
    """Return every figure."""
    paths = modules()
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in paths.items()}
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in paths.items()}
    graph = {name: set(imported(tree, set(paths))) - {name} for name, tree in trees.items()}
    names = [each for tree in trees.values() for each in function_names(tree)]
    by_package: Counter[str] = Counter()
    tokens_by_package: Counter[str] = Counter()
    importers: dict[str, set[str]] = defaultdict(set)
    for name in trees:
        package = name.partition(".")[0]
        by_package[package] += lines[name]
        tokens_by_package[package] += tokens(paths[name])
        for other in graph[name]:
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
        "circles": circles(graph),
        "imports_upward": imports_upward(graph),
        "tokens_by_package": dict(tokens_by_package),
        "functions": len(names),
        "one_word_functions": sum("_" not in name.strip("_") for name in names),
        "bare_participles": sorted(filter(is_participle, names)),
        "largest_class": largest_class(trees),
        "conversation_lines": sum(
            len((ROOT / name).read_text("utf-8").splitlines()) for name in CONVERSATION
        ),
        "classes_that_stand_twice": {
            name: places for name, places in sorted(classes.items()) if len(places) > 1
        },
    }


def goals(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each measure with what it is now and what it may be at most."""
    size = sum(found["tokens_by_package"].values())
    one_word = 100 * found["one_word_functions"] / found["functions"]
    largest, entered = found["largest_class"], found["an_honest_round"]
    upward = sum(map(len, found["imports_upward"].values()))
    yield (
        "tokens of the product / without training",
        f"{size:,} / {size - found['tokens_by_package']['training']:,}",
        "265,000 / 225,000",
    )
    yield (
        "one-word functions / bare participles",
        f"{one_word:.0f} % / {len(found['bare_participles'])}",
        "40 % / 10",
    )
    yield (
        "attributes / methods of the largest class",
        f"{largest['attributes'][0]} / {largest['methods'][0]}",
        "16 / 24",
    )
    yield "imports that go up / circles", f"{upward} / {len(found['circles'])}", "0 / 1"
    yield "lines of a member's conversation", str(found["conversation_lines"]), "520"
    yield (
        "functions / modules of an honest round",
        f"{entered['functions']:,} / {entered['modules']}",
        "850 / 100",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/house.json")
    given = parser.parse_args()
    found = {**measured(), **walked()}
    print(f"{found['lines']:,} lines in {found['modules']} modules, at most {LINES_MAX:,} lines")
    print(json.dumps(found, indent=1))
    print(f"\n{'measure':<43}{'now':>20}{'at most':>20}")
    for measure, now, most in goals(found):
        print(f"{measure:<43}{now:>20}{most:>20}")
    write_findings(found, given.output)
    if found["lines"] > LINES_MAX:
        sys.exit("house: the product is larger than it may be")


if __name__ == "__main__":
    main()
