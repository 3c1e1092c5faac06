"""Options that several commands share, and the decorators that add them."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.cli.console import reporting_errors
from veilsum.protocol.errors import Misuse
from veilsum.system.exposure import refuse_loose_mode

if TYPE_CHECKING:
    from client_sdk.operator import Operator

_TABLES_PANEL = "Tables"
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of patient or exam ids (.csv, .parquet); other formats hold an array `ids`.",
        show_default="id, if there is one",
        rich_help_panel=_TABLES_PANEL,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of labels (.csv, .parquet); other formats hold an array `labels`.",
        show_default="label",
        rich_help_panel=_TABLES_PANEL,
    ),
]
DecimalComma = Annotated[
    bool,
    typer.Option(
        "--decimal-comma", help="Numbers of .csv have a decimal comma.", rich_help_panel=_TABLES_PANEL
    ),
]
Encoding = Annotated[
    str,
    typer.Option(
        help="Encoding of .csv, such as cp1252 of older Windows programs.", rich_help_panel=_TABLES_PANEL
    ),
]
Standardise = Annotated[
    Path | None,
    typer.Option(
        help="Standardise tabular features by the moments in this file; a new file is written from these records."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Folder = Annotated[Path, typer.Argument(help="The identity's folder (`veilsum member new`).")]
AdminKey = Annotated[
    str | None,
    typer.Option(envvar="VEILSUM_ADMIN_KEY", help="The admin's public key.", show_default="the one pinned"),
]
DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="VEILSUM_URL", help="The coordinator's address.")]
OPERATOR_TOKEN: ContextVar[str | None] = ContextVar("token", default=None)
"""The operator's token from `veilsum --token-file`; it takes precedence over other sources."""


def _choose_token(value: str | None) -> str | None:
    return OPERATOR_TOKEN.get() or value


Token = Annotated[
    str | None,
    typer.Option(
        envvar="VEILSUM_OPERATOR_TOKEN",
        callback=_choose_token,
        help="The operator's token. Command lines are visible to other users: prefer the variable or `veilsum --token-file`.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File that holds the operator's token; - reads standard input.",
        allow_dash=True,
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="VEILSUM_CA", help="PEM file of the CA that signed the coordinator's certificate."
    ),
]

ClientCert = Annotated[
    Path | None,
    typer.Option(
        envvar="VEILSUM_CLIENT_CERT",
        help="PEM file of your client certificate, if the coordinator requires one.",
    ),
]
ClientKey = Annotated[
    Path | None,
    typer.Option(
        envvar="VEILSUM_CLIENT_KEY", help="PEM file of its key, unless the certificate's file holds it."
    ),
]


def token_in(path: Path | None) -> str | None:
    """Read the operator's token from a file, or from standard input for `-`."""
    if path is None:
        return None
    try:
        if path.is_file():
            refuse_loose_mode(path, group_may=True)
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode()
    except Misuse as error:
        raise typer.BadParameter(f"--token-file: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise typer.BadParameter(f"--token-file {path} can't be read: {why}") from error
    if not text.strip():
        raise typer.BadParameter(f"--token-file {path} holds no token")
    return text


_MADE_ARGUMENTS = frozenset({"connect", "form"})
"""Arguments of commands that these decorators make of options."""
Command = Callable[..., None]
Connect = Callable[..., AbstractContextManager["Operator"]]
"""`veilsum.cli.remote.operator`, bound to the connection's options; takes its other keywords."""


def report_errors(command: Command) -> Command:
    """Add the option `--json` to a command, and report errors that a user can fix as messages."""

    @wraps(command)
    def run(*, json_: bool, **options: Any) -> None:
        with reporting_errors(as_json=json_):
            command(**options)

    return _with_options(run, command, json_=(AsJson, False))


def add_table_options(command: Command) -> Command:
    """Add the options that describe tables to a command that `report_errors` wraps. Its argument `form` is the `TableFormat` of their values."""

    @wraps(command)
    def run(
        *, id_column: str | None, label_column: str | None, decimal_comma: bool, encoding: str, **options: Any
    ) -> None:
        from veilsum.cli.tables import TableFormat

        command(form=TableFormat(id_column, label_column, decimal_comma, encoding), **options)

    added = {
        "id_column": (IdColumn, None),
        "label_column": (LabelColumn, None),
        "decimal_comma": (DecimalComma, False),
        "encoding": (Encoding, "utf-8"),
    }
    return report_errors(_with_options(run, command, **added))


def at_coordinator(*, token: bool) -> Callable[[Command], Command]:
    """Add `--url`, `--ca` and, with `token`, `--token` to a command that `report_errors` wraps. Its argument `connect` is bound to their values."""

    def decorate_command(command: Command) -> Command:
        @wraps(command)
        def run(*, url: str, ca: Path | None, token: str | None = None, **options: Any) -> None:
            from veilsum.cli.remote import open_operator

            command(connect=partial(open_operator, url, token, ca), **options)

        own = {"token": (Token, None)} if token else {}
        return report_errors(_with_options(run, command, url=(Url, DEFAULT_URL), **own, ca=(Ca, None)))

    return decorate_command


def _with_options(run: Command, command: Command, **added: tuple[Any, Any]) -> Command:
    """Give `run` the command's signature plus the `added` options, each with type and default, for typer."""
    own = [each for each in signature(command).parameters.values() if each.name not in _MADE_ARGUMENTS]
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    setattr(run, "__signature__", Signature([*own, *more]))  # noqa: B010 - mypy knows no such attribute
    return run
