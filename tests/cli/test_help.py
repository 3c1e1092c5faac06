"""`--help` of every command, and packages that a member's machine doesn't need. The list of commands stands in tests/texts."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import rich_utils

from tests.support.cli import COMMAND, Cli

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "fastapi", "uvicorn", "sqlalchemy", "scipy", "sklearn", "matplotlib")


def commands(group: Any = COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


PATHS = dict(commands())


OUTSIDE = {
    *("url", "token", "ca", "json_", "help"),
    *("id_column", "label_column", "decimal_comma", "encoding"),
}
"""Options of the connection, the output and the tables, which have a panel of their own."""


def test_no_command_has_more_than_a_dozen_options() -> None:
    for path, command in PATHS.items():
        own = [
            each for each in command.params if each.param_type_name == "option" and each.name not in OUTSIDE
        ]
        assert len(own) <= (3 if path == ("operator", "run") else 12), path


@pytest.mark.parametrize("path", [(), ("serve",), ("operator", "run")], ids=" ".join)
def test_help_has_a_short_name(path: tuple[str, ...], cli: Cli) -> None:
    assert cli(*path, "-h").out == cli(*path, "--help").out


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_names_every_option_in_words(
    path: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 200)
    outcome = cli(*path, "--help")
    assert outcome.code == 0
    command = PATHS[path]
    assert command.help
    for parameter in command.params:
        if path or parameter.name not in {"install_completion", "show_completion"}:
            assert parameter.help, parameter.name
            assert parameter.help.rstrip(".").split(";")[0][:40] in outcome.out, parameter.name
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert option in outcome.out
    if not hasattr(command, "commands"):
        assert "--json" in outcome.out
    assert not re.search(r"\s\.( |$)", outcome.out), "a default in square brackets was taken for markup"


def modules(code: str) -> set[str]:
    """Return all modules, and their packages, in sys.modules after some code in a new process."""
    report = "; import json, sys; sys.stderr.write(json.dumps([*sys.modules]))"
    run = subprocess.run(
        [sys.executable, "-c", code + report], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = json.loads(run.stderr.splitlines()[-1])
    return {*names, *(name.split(".")[0] for name in names)}


def helped(*words: str) -> str:
    return f"from typer.main import get_command; from veilsum.cli.app import app; get_command(app)({[*words, '--help']!r}, standalone_mode=False)"


def test_help_answers_at_once() -> None:
    heavy = {*HEAVY, "numpy", "pydantic", "httpx", "cryptography", "veilsum.protocol.messages"}
    assert not modules(helped()) & heavy


def test_a_member_needs_none_of_the_extras() -> None:
    own = "from client_sdk import Identity, Member, Policy, Result; import client_sdk.operator, veilsum.calibration"
    commands = "import veilsum.cli.running, veilsum.cli.fitting, veilsum.cli.remote, veilsum.cli.admin"
    code = f"{own}; {commands}; {helped('member', 'join')}"
    assert not modules(code) & {*HEAVY, "pyarrow", "asyncpg", "structlog"}


def test_the_bare_package_costs_nothing() -> None:
    assert not modules("import client_sdk, veilsum.study.signed") & {*HEAVY, "httpx", "typer", "rich"}
    assert not modules("import client_sdk, veilsum") & {*HEAVY, "numpy", "httpx", "pydantic", "cryptography"}
