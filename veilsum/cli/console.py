"""Console output of commands: JSON for scripts, tables and progress for people, errors that say what to do next."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial, wraps
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from veilsum.system.exposure import loose_mode

if TYPE_CHECKING:
    from client_sdk.operator import Operator

IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of patient or exam ids (.csv, .parquet); other formats hold an array `ids`.",
        show_default="id, if there is one",
    ),
]
Standardise = Annotated[
    Path | None,
    typer.Option(
        help="Standardise tabular features by the moments in this file; a new file is written from these records."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="VEILSUM_URL", help="The coordinator's address.")]
TOKEN: ContextVar[str | None] = ContextVar("token", default=None)
"""The operator's token from `veilsum --token-file`; it takes precedence over other sources."""


def _chosen(value: str | None) -> str | None:
    return TOKEN.get() or value


Token = Annotated[
    str | None,
    typer.Option(
        envvar="VEILSUM_OPERATOR_TOKEN",
        callback=_chosen,
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
NOTE_MAX = 4096
"""Maximum characters of a note; the rest is cut."""
CLIENT: ContextVar[tuple[Path | None, Path | None]] = ContextVar("client", default=(None, None))
"""Client certificate and key from `veilsum --client-cert` and `--client-key`."""


def token_in(path: Path | None) -> str | None:
    """Read the operator's token from a file, or from standard input for `-`."""
    if path is None:
        return None
    try:
        if path.is_file() and (why := loose_mode(path, group_may=True)) is not None:
            raise typer.BadParameter(f"--token-file: {why}")
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise typer.BadParameter(f"--token-file {path} can't be read: {why}") from error
    if not text.strip():
        raise typer.BadParameter(f"--token-file {path} holds no token")
    return text


Command = Callable[..., None]
Connect = Callable[..., AbstractContextManager["Operator"]]
"""`veilsum.cli.remote.operator`, bound to the connection's options; takes its other keywords."""
JSON: ContextVar[bool] = ContextVar("json", default=False)
"""Whether the running command prints JSON."""


def reporting(command: Command) -> Command:
    """Add the option `--json` to a command, and report errors that a user can fix as messages."""

    @wraps(command)
    def run(*, json_: bool, **options: Any) -> None:
        with reported(as_json=json_):
            command(**options)

    return _with_options(run, command, json_=(AsJson, False))


def at_coordinator(*, token: bool) -> Callable[[Command], Command]:
    """Add `--url`, `--ca` and, with `token`, `--token` to a `reporting` command. Its argument `connect` is bound to their values."""

    def decorated(command: Command) -> Command:
        @wraps(command)
        def run(*, url: str, ca: Path | None, token: str | None = None, **options: Any) -> None:
            from veilsum.cli.remote import operator

            command(connect=partial(operator, url, token, ca), **options)

        own = {"token": (Token, None)} if token else {}
        return reporting(_with_options(run, command, url=(Url, DEFAULT_URL), **own, ca=(Ca, None)))

    return decorated


def _with_options(run: Command, command: Command, **added: tuple[Any, Any]) -> Command:
    """Give `run` the command's signature plus the `added` options, each with type and default, for typer."""
    own = [each for each in signature(command).parameters.values() if each.name != "connect"]
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    setattr(run, "__signature__", Signature([*own, *more]))  # noqa: B010 - mypy knows no such attribute
    return run


def say(values: Mapping[str, Any], title: str = "", *, scripts: Mapping[str, Any] | None = None) -> None:
    """Print a titled list of names and values. With `--json`, print an object instead: `scripts` if given, else `values`."""
    if JSON.get():
        sys.stdout.write(json.dumps(values if scripts is None else scripts, indent=2) + "\n")
        sys.stdout.flush()
        return
    if title:
        typer.secho(title, bold=True)
    width = max(map(len, values), default=0)
    for name, value in values.items():
        label = typer.style(plain(name).replace("_", " ").ljust(width), dim=True)
        typer.echo(f"{label}  {plain(_shown(value))}")


def table(
    title: str, rows: list[dict[str, Any]], *, empty: str = "", scripts: Mapping[str, Any] | None = None
) -> None:
    """Print rows with the same names as a table, or the note `empty`. With `--json`, print an object as `say` does."""
    if JSON.get():
        say({title.lower(): rows}, scripts=scripts)
        return
    if not rows:
        note(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in rows[0]:
        shown.add_column(name.replace("_", " "), header_style="dim", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(plain(_shown(value))) for value in row.values()))
    Console(highlight=False).print(shown)


def note(text: str) -> None:
    """Print one line for people on stderr, so that `--json` stays clean. Long lines are cut."""
    shown = plain(text[:NOTE_MAX]) + (" …" if len(text) > NOTE_MAX else "")
    sys.stderr.write(shown + "\n")
    sys.stderr.flush()


def notes() -> Callable[[str], None]:
    """Return a `note` that skips a line equal to the previous one."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            note(text)
        last = text

    return tell


def fail(message: str, *, cause: str | None = None, code: int = 1) -> NoReturn:
    """End the command with an error message."""
    if JSON.get():
        sys.stdout.write(json.dumps({"error": message, "cause": cause}) + "\n")
    else:
        sys.stderr.write(f"veilsum: {plain(message)}\n")
    raise typer.Exit(code)


def lacks(*modules: str) -> bool:
    """Whether any of these top-level modules is not installed. Imports nothing."""
    return any(find_spec(name) is None for name in modules)


_EXTRAS = {
    "service": ("fastapi", "obstore", "sqlalchemy", "structlog", "uvicorn"),
    "training": ("sklearn", "torch"),
}


def need(what: str, *extras: str) -> None:
    """End the command unless the modules of these extras are installed."""
    if lacks(*(module for extra in extras for module in _EXTRAS[extra])):
        fail(f"{what} needs more than is installed: pip install 'veilsum[{','.join(extras)}]'")


_HINTS = {
    "unauthorised": "Set VEILSUM_OPERATOR_TOKEN to a valid one, or name its file by `veilsum --token-file`",
    "already-summed": "Run the study for a later --period, with new records",
}
"""Next step for the user of a command, by cause of the fault."""


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Report errors that a user can fix as messages. Other errors keep their traceback."""
    from pydantic import ValidationError

    from client_sdk.errors import ClientError
    from veilsum.calibration import CalibrationError
    from veilsum.protocol.errors import Misuse, PeerFault
    from veilsum.protocol.forms import first_fault

    before = JSON.set(as_json)
    try:
        yield
    except PeerFault as fault:
        hint = _HINTS.get(fault.cause.value)
        fail(f"{fault}. {hint}" if hint else str(fault), cause=fault.cause.value)
    except ValidationError as error:
        fail(first_fault(error))
    except (Misuse, CalibrationError, ClientError) as error:
        fail(str(error))
    except OSError as error:
        fail(_of_system(error))
    except MemoryError as error:
        what = str(error) or "allocation failed"
        fail(f"out of memory ({what}): use fewer classes or features, or a larger machine")
    except KeyboardInterrupt:
        fail("stopped", code=130)
    finally:
        JSON.reset(before)


def plain(text: str) -> str:
    """Put text on one line, without control characters: text from a coordinator could otherwise move the cursor."""
    return "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)


def _of_system(error: OSError) -> str:
    """Describe a system error, with the next step if a path is of the wrong kind."""
    path = error.filename
    match error:
        case FileExistsError() if path is not None and not Path(path).is_dir():
            return f"{path} is a file, expected a folder: choose another path"
        case NotADirectoryError() if path is not None:
            return f"{path} leads through a file, expected a folder: choose another path"
        case IsADirectoryError() if path is not None:
            return f"{path} is a folder, expected a file"
        case _ if path is not None and error.strerror:
            return f"{path}: {error.strerror}"
        case _:
            return str(error)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    return str(value)


def clock(moment_s: float | None) -> str:
    """Format a Unix time: time of day today, date and time otherwise."""
    if moment_s is None:
        return "–"
    try:
        moment = datetime.fromtimestamp(moment_s, UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # a coordinator may show any number
        return f"{moment_s:g} s"
    today = datetime.now(UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")
