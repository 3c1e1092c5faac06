"""Pages hold: commands and options exist, links lead somewhere, the references have every flag and route, the start page runs."""

import ast
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml
from typer.main import get_command

from docs.hooks import BESIDE, commands, commands_page, darkened, relinked, rest_page
from veilsum.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MADE = {"reference/commands.md", "reference/rest.md", *BESIDE.values()}
COMMANDS = dict(commands(get_command(app)))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shell(page: Path) -> Iterator[str]:
    """Each command of a page, whole."""
    for language, code in FENCE.findall(page.read_text("utf-8")):
        if language in {"sh", "console"}:
            yield from re.findall(r"\bveilsum (?!\[)[^|>&)\n]+", code.replace("\\\n", " "))


@pytest.mark.parametrize("page", [each for each in PAGES if any(shell(each))], ids=lambda page: page.stem)
def test_commands_and_options_exist(page: Path) -> None:
    for line in shell(page):
        words, name = shlex.split(f"veilsum {line.removeprefix('veilsum ')}", comments=True), "veilsum"
        for word in words[1:]:
            if f"{name} {word}" not in COMMANDS:
                break
            name = f"{name} {word}"
        if name == "veilsum":
            assert words[1:] in ([], ["COMMAND", "--help"]), line
            continue
        parameters = COMMANDS[name].params
        known = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
        said = {word.split("=")[0] for word in words if word.startswith("--")}
        assert said <= known, line
        needed = [set(each.opts) for each in parameters if each.required and each.param_type_name == "option"]
        assert all(said & options for options in needed), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_links_lead_somewhere(page: Path) -> None:
    there = {str(path.relative_to(ROOT / "docs")) for path in PAGES} | MADE
    for link in re.findall(r"(?<!!)\[[^\]]+\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8")):
        in_docs = os.path.normpath(page.parent.relative_to(ROOT / "docs") / link)
        assert in_docs in there or (page.parent / link).exists(), link


def test_every_page_has_its_place_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    named = set(re.findall(r"[\w/.-]+\.md", str(site["nav"])))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES} | MADE
    left = {page for page in pages if not any(Path(page).match(each) for each in site["not_in_nav"].split())}
    assert named == left  # mkdocs --strict stops at a page without a place, and at a place without a page


def test_every_decision_is_listed_by_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    titles = {
        path.name: path.read_text("utf-8").splitlines()[0].removeprefix("# ") for path in folder.glob("0*.md")
    }
    wanted = [f"- [{title}]({name})" for name, title in sorted(titles.items())]
    listed = (folder / "README.md").read_text("utf-8").splitlines()
    assert [line for line in listed if line.startswith("- ")] == wanted


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
        for language, code in FENCE.findall(each.read_text("utf-8"))
        if language == "python"
        for line in ast.walk(ast.parse(code))
        if isinstance(line, ast.ImportFrom) and line.module is not None
        if line.module.split(".")[0] in {"calibration", "client_sdk", "training", "veilsum"}
        for alias in line.names
    }
    assert imported <= {name for _, _, name in named}


def test_links_are_turned_to_where_the_site_has_the_page() -> None:
    text = "[a](../deploy/README.md#x) [b](../service/pages/causes.md) [c](../tests/a.py) ![d](flow.svg) "
    text += "[e](https://a.b)"
    turned = relinked(text, "docs/operations.md", "operations.md")
    assert turned == (
        "[a](project/deploy.md#x) [b](causes.md) c (`tests/a.py`) ![d](flow.svg) [e](https://a.b)"
    )
    assert relinked("[a](docs/heads.md)", "CHANGELOG.md", "project/changelog.md") == "[a](../heads.md)"


def test_drawings_have_a_dark_side_and_words() -> None:
    for drawing in (ROOT / "docs" / "drawings").glob("*.svg"):
        text = drawing.read_text("utf-8")
        assert "<title" in text
        assert "<desc" in text
        left = set(re.findall(r"#[0-9a-f]{6}", text)) & set(re.findall(r"#[0-9a-f]{6}", darkened(text)))
        assert left == set(), f"{drawing.name}: {left} are the same on a dark page"


def python(path: Path) -> str:
    """What a page or an example shows of Python."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return "\n".join(code for language, code in FENCE.findall(text) if language == "python")
    return (
        "".join(line for cell in json.loads(text)["cells"] for line in cell["source"])
        if path.suffix == ".ipynb"
        else text
    )


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
def test_the_start_page_s_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    blocks = [
        code for language, code in FENCE.findall((ROOT / "docs" / "start.md").read_text()) if language == "sh"
    ]
    script = "\n".join(["set -e", *blocks]).replace("8000", port)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
    inherited["HTTP_PROXY"] = "http://127.0.0.1:9"  # as where all goes through a proxy; nobody answers there
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=inherited | paths,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            said, lines = "", iter(run.stdout or ())
            for line in lines:
                said += line
                if "verified against" in line:
                    break
            assert run.wait(120) == 0, said
        finally:
            os.killpg(run.pid, signal.SIGKILL)
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("round", "a", "b"))
    assert "verified against" in said, said + logs
    assert "the pinned admin key" in said
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10))
    exec(compile(python(ROOT / "docs" / "start.md"), "start.md", "exec"), {"model": model})
    assert model[0].out_features == 3


def test_no_page_puts_a_token_on_a_command_line() -> None:
    recorded = ROOT / "docs" / "trial.md"  # as it was typed, with a token for a try
    for page in (ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - {recorded})):
        assert not re.search(r"--token [A-Z…<$]", page.read_text("utf-8")), page
