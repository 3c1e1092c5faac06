"""Pages are true: commands, options and Python names exist, links resolve, references list all flags and routes, the start page runs."""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from typer.main import get_command

from client_sdk import Member, Policy, Result
from client_sdk.operator import Operator
from docs.hooks import BESIDE, commands, commands_page, darkened, rest_page
from veilsum.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
READ = [ROOT / "README.md", *PAGES]
MADE = {"reference/commands.md", "reference/rest.md", *BESIDE.values()}
COMMANDS = dict(commands(get_command(app)))
OURS = ("client_sdk", "service", "training", "veilsum")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python(path: Path) -> str:
    """Return the Python code in a page or an example."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return "\n".join(code for language, code in FENCE.findall(text) if language == "python")
    return (
        "".join(line for cell in json.loads(text)["cells"] for line in cell["source"])
        if path.suffix == ".ipynb"
        else text
    )


def shell(page: Path) -> Iterator[str]:
    """Return each whole command in a page."""
    for language, code in FENCE.findall(page.read_text("utf-8")):
        if language in {"sh", "console"}:
            whole = re.sub(r"\$\(.*\)", "ANSWER", code.replace("\\\n", " "))
            whole = re.sub(r" 2> \S+", "", whole)
            if language == "console":  # what no prompt stands before was printed
                whole = "\n".join(re.findall(r"^[a-z-]*\$ (.*)$", whole, re.MULTILINE))
            yield from re.findall(r"\bveilsum (?!\[)[^|>&)\n]+", whole)


def named(words: list[str]) -> tuple[str, list[str]]:
    """Return the command that a line starts, and its arguments."""
    name, rest = "veilsum", words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name = f"{name} {rest.pop(0)}"
    return name, rest


@pytest.mark.parametrize("page", [each for each in READ if any(shell(each))], ids=lambda page: page.stem)
def test_the_parser_takes_every_command(page: Path) -> None:
    for line in shell(page):
        name, rest = named(shlex.split(line, comments=True))
        try:
            COMMANDS[name].make_context(name, rest)
        except ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_commands_in_sentences_exist() -> None:
    """`veilsum NAME --option …` in backquotes, on every page except the specification, which names hashed texts."""
    strange = set[tuple[str, str]]()
    for page in {*READ, *SHOWN} - {*(ROOT / "docs" / "protocol").iterdir()}:
        for line in re.findall(r"`(veilsum [^`]+)`", FENCE.sub("", page.read_text("utf-8"))):
            name, rest = named(re.split(r"[\s/=]+", line))
            known = {
                option for each in COMMANDS[name].params for option in (*each.opts, *each.secondary_opts)
            }
            said = {word for word in rest if re.fullmatch(r"--[a-z][a-z-]*", word)}
            group = hasattr(COMMANDS[name], "commands") and name != "veilsum"
            if said - known - {"--help"} or (group and rest and re.fullmatch("[a-z-]+", rest[0])):
                strange.add((page.name, line))
    assert strange == set()


def anchors(page: Path) -> set[str]:
    """Return link targets after `#`: explicit ids, and headings as the site writes them."""
    found = set[str]()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        explicit = re.search(r"\{ #([\w-]+) \}", heading)
        words = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
        found.add(explicit[1] if explicit else re.sub(r"[-\s]+", "-", words))
    return found


SHOWN = [*PAGES, *(ROOT / each for each in BESIDE)]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text("utf-8")):
        target = page.parent / path if path else page
        in_docs = os.path.relpath(target, ROOT / "docs")
        assert target.exists() or in_docs in MADE, path
        if anchor and target.exists():  # pages made from the code have other tests
            assert anchor in anchors(target), (path, anchor)


def test_every_command_and_every_option_has_its_heading() -> None:
    page = commands_page()
    for name, command in COMMANDS.items():
        assert f"\n## {name} {{" in page
        section = page.split(f"\n## {name} {{")[1].split("\n## ")[0]
        if not hasattr(command, "commands"):
            headings = " ".join(re.findall(r"^#### .*$", section, re.MULTILINE))
            for parameter in command.params:
                for option in parameter.opts if parameter.param_type_name == "option" else ():
                    assert f"`{option}`" in headings, (name, option)


def test_every_route_has_its_heading_and_its_causes_their_links() -> None:
    from service.app import create_app  # noqa: PLC0415 - slow
    from service.settings import Settings  # noqa: PLC0415 - as above

    page = rest_page()
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        for method in methods:
            assert f"\n## {method.upper()} {path}\n" in page
    assert "[not-found](../causes.md#not-found)" in page


def test_the_python_page_names_what_there_is_and_what_pages_import() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    named = [name.rpartition(".") for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    for module, _, name in named:
        assert getattr(import_module(module), name).__module__ == module
    imported = {
        alias.name
        for each in PAGES
        for line in ast.walk(ast.parse(python(each)))
        if isinstance(line, ast.ImportFrom) and (line.module or "").split(".")[0] in OURS
        for alias in line.names
    }
    assert imported <= {name for _, _, name in named}


def test_drawings_have_a_dark_side_and_words() -> None:
    for drawing in (ROOT / "docs" / "drawings").glob("*.svg"):
        text = drawing.read_text("utf-8")
        assert "<title" in text
        assert "<desc" in text
        left = set(re.findall(r"#[0-9a-f]{6}", text)) & set(re.findall(r"#[0-9a-f]{6}", darkened(text)))
        assert left == set(), f"{drawing.name}: {left} are the same on a dark page"


SNIPPETS = [page for page in (*PAGES, ROOT / "README.md") if python(page)]
CALLED = {"member": Member, "operator": Operator, "policy": Policy, "result": Result}
"""The names that pages use for objects of each class."""


@pytest.mark.parametrize("page", SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_python_exist(page: Path) -> None:
    """Imports from our packages, keyword arguments of calls, and attributes of objects under their usual names."""
    tree = ast.parse(python(page))
    imported = dict[str, Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = import_module(str(node.module))
            imported |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = CALLED.get(node.value.id)
            assert owner is None or node.attr in known(owner), ast.unparse(node)
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(name) if name in imported:
                    target = imported[name]
                case ast.Attribute(ast.Name(name), method) if name in {*imported, *CALLED}:
                    target = getattr(imported.get(name, CALLED.get(name)), method)
                case _:
                    continue
            keywords = {each.arg for each in node.keywords if each.arg}
            assert keywords <= set(inspect.signature(target).parameters), ast.unparse(node)


def known(owner: type) -> set[str]:
    """Return the attribute names of a class's objects."""
    fields = {name for each in owner.__mro__ for name in getattr(each, "__annotations__", {})}
    return {*dir(owner), *fields}


@pytest.mark.parametrize(
    "path",
    [
        *PAGES,
        ROOT / "README.md",
        *(
            each
            for each in sorted((ROOT / "examples").rglob("*"))
            if each.suffix in {".py", ".ipynb"} and ".venv" not in each.parts
        ),
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_results_are_verified_by_the_admin_s_key_before_they_are_used(path: Path) -> None:
    code = python(path)
    assert "verify()" not in code
    for name, following in re.findall(r"(?:(\w+) = )?Result\.load\(.*\n(.*)", code):
        assert name, "what is loaded is used before it is verified"
        assert following.strip().startswith(f"{name}.verify(")


@pytest.mark.slow
def test_the_start_page_s_commands_run_and_print_what_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start.md").read_text("utf-8")
    shown = FENCE.findall(page)
    script = "\n".join(["set -e", *(code for language, code in shown if language == "sh")])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
    inherited["HTTP_PROXY"] = (
        "http://127.0.0.1:9"  # a proxy that is down: local addresses must not go through it
    )
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=inherited | paths,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    printed = _without_numbers(run.stdout + run.stderr)
    for line in "".join(code for language, code in shown if language == "text").splitlines():
        if not line.startswith("✓"):  # a pilot that is quick passes a phase unseen
            assert _without_numbers(line) in printed, line


def _without_numbers(text: str) -> str:
    """Columns are as wide as their longest number; times and the hold-out set differ between runs."""
    return re.sub(r"[\d.]+(e-\d+)?", "#", re.sub(r" +", " ", text))


def test_the_first_test_that_a_newcomer_is_shown_passes() -> None:
    names: dict[str, Any] = {}
    exec(python(ROOT / "docs" / "testing.md"), names)
    [first] = [value for name, value in names.items() if name.startswith("test_")]
    first()


def plain(function: ast.FunctionDef) -> str:
    """Return a function without annotations, docstring and comments for checkers."""
    for argument in function.args.args:
        argument.annotation = None
    function.returns = None
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    return ast.unparse(function)


def functions(code: str) -> dict[str, str]:
    return {each.name: plain(each) for each in ast.parse(code).body if isinstance(each, ast.FunctionDef)}


def test_flower_s_code_is_the_example_s() -> None:
    """The example itself runs in Flower's own environment: tests/examples."""
    page = ROOT / "docs" / "tutorials" / "flower.md"
    shown = functions(python(page))
    example = functions((ROOT / "examples" / "flower" / "apps.py").read_text("utf-8"))
    assert shown
    assert shown == {name: example[name] for name in shown}


def test_each_sentence_of_the_promise_has_its_tests() -> None:
    """The README's promise is one paragraph, and docs/assurance.md has a row for each of its sentences."""
    readme = (ROOT / "README.md").read_text("utf-8")
    promise = re.search(r"^## The promise\n\n(.+)\.\n\n", readme, re.MULTILINE)
    table = re.search(
        r"^\| sentence \| tests \|\n.*\n((?:\|.*\n)+)",
        (ROOT / "docs" / "assurance.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert promise is not None
    assert table is not None
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", table[1], re.MULTILINE))
    assert promise[1].split(". ") == [*rows]
    for sentence, tests in rows.items():
        paths = re.findall(r"`([\w/]+/test_\w+\.py)(?:::test_\w+)?`", tests)
        assert len(paths) == len(tests.split("; ")) > 0, sentence


def test_targets_and_scripts_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in (*SHOWN, ROOT / "README.md"):
        text = page.read_text("utf-8")
        named = set(re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, (page.name, named - targets)
        for module in re.findall(r"python -m ((?:assurance|benchmarks|research|tests)(?:\.\w+)+)", text):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), (page.name, module)


TOP = "assurance|benchmarks|client_sdk|deploy|docs|examples|research|service|tests|training|veilsum"


@pytest.mark.parametrize("page", [*SHOWN, ROOT / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_functions_that_pages_name_exist(page: Path) -> None:
    """`path/of/file.py`, and names after it: `path.py::test`, or ``path.py`, `Class.method``."""
    text = page.read_text("utf-8")
    for path in re.findall(rf"`((?:{TOP})/[\w/.-]*\.py)", text):
        assert (ROOT / path).exists(), path
    for path, name in re.findall(rf"`((?:{TOP})/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"\bdef {name}\(", (ROOT / path).read_text("utf-8")), (path, name)
    for path, names in re.findall(rf"`((?:{TOP})/[\w/]+\.py)`((?:, `[\w.]+`)+)", text):
        code = (ROOT / path).read_text("utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", code), (path, name)
