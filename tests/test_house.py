"""The house's own rules, and that what its documents promise exists (see also the contracts in pyproject.toml)."""

import ast
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.house import function_names, is_participle, module_constants
from veilsum.protocol.causes import Cause

ROOT = Path(__file__).parents[1]
PACKAGES = ("client_sdk", "service", "training", "veilsum")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
BESIDE = ("tests", "assurance", "research", "benchmarks", "examples", "docs", "deploy")
TEXTS = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "pyproject.toml")]
SUFFIXES = {".py", ".md", ".html", ".toml", ".svg", ".service", ".yml", ".yaml", ".json"}
UNFINISHED = re.compile(rf"\b({'TO' + 'DO'}|{'FIX' + 'ME'}|{'X' * 3})\b")


TWINS = {
    "HOMES": "each package that loads its names at their first use has one",
    "SECRET_LIMBS": "an estimate of costs loads without numpy, too",
    "SHARE_BYTES": "the messages load without numpy, which the sharing needs",
}
"""Constants that stand in two modules."""
SENTENCES_MAX = 60
"""Tests that may assert a sentence."""


def tree_of(path: Path) -> ast.Module:
    """Parse a file. To keep all trees would cost more than to parse again: the collector of cycles would go through them."""
    return ast.parse(path.read_text("utf-8"))


def sources() -> list[Path]:
    inside = [
        path
        for name in (*PACKAGES, *BESIDE)
        for path in (ROOT / name).rglob("*")
        if path.suffix in SUFFIXES and ".venv" not in path.parts
    ]
    return [*inside, *TEXTS]


@pytest.mark.slow
def test_the_wheel_installs_our_packages_and_nothing_else(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    built = subprocess.run(
        [*pip, "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if built.returncode and re.search(
        r"hatchling|connection|Temporary failure|No module named pip", built.stderr
    ):
        pytest.skip(f"the build backend can't be fetched: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    [path] = tmp_path.glob("*.whl")
    wheel = zipfile.Path(path)
    tops = {entry.name for entry in wheel.iterdir()}
    [metadata] = [name for name in tops if name.endswith(".dist-info")]
    assert tops - {metadata} == set(PACKAGES)
    assert "veilsum = veilsum.cli:main" in (wheel / metadata / "entry_points.txt").read_text()
    described = (wheel / metadata / "METADATA").read_text().splitlines()[0]
    assert described in {f"Metadata-Version: 2.{minor}" for minor in range(1, 6)}, (
        "does release.yml's twine take it?"
    )
    names = set(wheel.root.namelist())
    assert {str(path.relative_to(ROOT)) for path in MODULES} <= names
    assert {name for name in names if Path(name).suffix in {".pyc", ".key", ".sqlite3"}} == set()
    assert "veilsum/cli/demo/report.html" in names
    assert {
        f"service/pages/{name}" for name in ("causes.md", "templates/base.html", "static/uplot.min.js")
    } <= names


def test_nothing_but_layers_stands_in_the_package() -> None:
    [layers] = [
        contract["layers"]
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
            "contracts"
        ]
        if contract["type"] == "layers" and "containers" not in contract
    ]
    named = {name for layer in layers for name in re.findall(r"veilsum\.(\w+)", layer)}
    standing = {
        path.relative_to(ROOT / "veilsum").parts[0]
        for path in MODULES
        if path.is_relative_to(ROOT / "veilsum")
    }
    assert standing == named | {"__init__.py", "__main__.py"}


def test_no_key_is_of_a_generator_that_can_be_guessed() -> None:
    drawn = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in MODULES
        if path.stem != "simulator"
        and "SigningKey" in path.read_text("utf-8")  # a simulator replays from a seed
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "SigningKey"
        if re.search(r"\b(random|default_rng|rng)\b", ast.unparse(call))
    ]
    assert drawn == []


def test_nothing_is_left_unfinished_or_bound_to_one_machine() -> None:
    own = "/wo" + "rk/"
    bad = [
        f"{path.relative_to(ROOT)}: {words}"
        for path in sources()
        if (text := path.read_text("utf-8"))
        for words in (*UNFINISHED.findall(text), *re.findall(own, text))
    ]
    assert bad == []


def test_every_cause_has_its_heading_and_every_heading_its_cause() -> None:
    page = (ROOT / "service" / "pages" / "causes.md").read_text()
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert headings == [cause.value for cause in Cause]
    sections = re.split(r"^## .+$", page, flags=re.MULTILINE)[1:]
    for cause, section in zip(Cause, sections, strict=True):
        first, _, advice = section.strip().partition("\n\n")
        assert first == f"{cause.summary[0].upper()}{cause.summary[1:]}."
        assert advice.startswith("**What to do.** ")


def test_a_function_s_name_can_be_searched() -> None:
    """It says what it does, not in what state something is afterwards."""
    suspects = [
        path
        for path in MODULES
        if any(map(is_participle, re.findall(r"\bdef (\w+)", path.read_text("utf-8"))))
    ]
    names = [name for path in suspects for name in function_names(tree_of(path))]  # without properties
    assert list(filter(is_participle, names)) == []


def test_a_constant_carries_its_subject() -> None:
    """A number or a text has at least two words, and no two modules give one name to different things."""
    homes = defaultdict[str, list[str]](list)
    for path in MODULES:
        for name, value in module_constants(tree_of(path)):
            where = f"{path.relative_to(ROOT)}: {name}"
            assert "_" in name.strip("_") or not isinstance(value, ast.Constant | ast.BinOp), where
            homes[name.strip("_")].append(where)
    assert {name for name, places in homes.items() if len(places) > 1} == TWINS.keys()


def test_no_two_classes_share_a_name() -> None:
    names = Counter(
        node.name for path in MODULES for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1 and not name.startswith("_")] == []


WATCHING = {"depth_of", "object", "setattr", "watch"}
"""Functions that take a module or class and the name of what it holds."""
NAMED = re.compile(r"""\w,\s*["']\w""")
"""Is found in every file that `named_in_text` finds anything in: parsing all files takes seconds."""


def named_in_text(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield import paths of our modules and classes with the name that a text gives of what they hold."""
    nodes = [*ast.walk(tree)]
    paths = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES
        for alias in node.names
    }
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Name(id=function) | ast.Attribute(attr=function),
                args=[ast.Name(id=owner), ast.Constant(value=str(name)), *_],
                keywords=[],
            ) if function in WATCHING and owner in paths:
                yield paths[owner], name
            case ast.Tuple(elts=[ast.Name(id=owner), ast.Constant(value=str(name)), _]) if owner in paths:
                if isinstance(pkgutil.resolve_name(paths[owner]), ModuleType):
                    yield paths[owner], name


def test_what_is_named_in_text_exists() -> None:
    """Campaigns watch and replace functions by their names, which no type checker sees."""
    missing = [
        f"{path.relative_to(ROOT)}: {owner}.{name}"
        for folder in ("tests", "assurance", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if NAMED.search(path.read_text("utf-8"))
        for owner, name in named_in_text(tree_of(path))
        if not hasattr(pkgutil.resolve_name(owner), name)
    ]
    assert missing == []


def asserts_a_sentence(function: ast.AST) -> bool:
    """Return whether an assertion or a `match=` has a text of four words or more."""
    places = list[ast.expr]()
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            places.append(node.test)
        elif isinstance(node, ast.keyword) and node.arg == "match":
            places.append(node.value)
    texts = [
        each.value
        for place in places
        for each in ast.walk(place)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return any(len(text.split()) > 3 < len(re.findall(r"[A-Za-z][\w'’-]*", text)) for text in texts)


def test_tests_assert_causes_and_numbers_not_sentences() -> None:
    """What people are told stands in tests/texts, where a better wording breaks no test. Some pages are made of sentences."""
    found = [
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and asserts_a_sentence(node)
    ]
    assert len(found) <= SENTENCES_MAX, found
