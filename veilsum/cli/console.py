"""Console output of commands: JSON for scripts, tables and progress for people, errors that say what to do next."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import typer

SHOWN_MAX = 4096
"""Maximum characters of a note, a value or an error for people; the rest is cut. `--json` shows values and errors whole."""
CLIENT_CERTIFICATE: ContextVar[tuple[Path | None, Path | None]] = ContextVar("client", default=(None, None))
"""Client certificate and key from `veilsum --client-cert` and `--client-key`."""
JSON_OUTPUT: ContextVar[bool] = ContextVar("json", default=False)
"""Whether the running command prints JSON."""


def print_values(
    values: Mapping[str, Any], title: str = "", *, scripts: Mapping[str, Any] | None = None
) -> None:
    """Print a titled list of names and values. With `--json`, print an object instead: `scripts` if given, else `values`."""
    if JSON_OUTPUT.get():
        sys.stdout.write(json.dumps(values if scripts is None else scripts, indent=2) + "\n")
        sys.stdout.flush()
        return
    if title:
        typer.secho(title, bold=True)
    width = max(map(len, values), default=0)
    for name, value in values.items():
        label = typer.style(one_line(name).replace("_", " ").ljust(width), dim=True)
        typer.echo(f"{label}  {cut_line(_format_value(value))}")


def print_table(
    title: str, rows: list[dict[str, Any]], *, empty: str = "", scripts: Mapping[str, Any] | None = None
) -> None:
    """Print rows with the same names as a table, or the note `empty`. With `--json`, print an object as `print_values` does.

    Names in snake_case become words. A name that quotes other text has a space, and is shown as it is.
    """
    if JSON_OUTPUT.get():
        print_values({title.lower(): rows}, scripts=scripts)
        return
    if not rows:
        print_note(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = Text(one_line(title), "bold")  # text is never markup: it may hold class names and addresses
    shown = Table(title=heading, title_justify="left", box=None, pad_edge=False)
    names = [one_line(name.replace("_", " ") if name.isidentifier() else name) for name in rows[0]]
    cells = [[cut_line(_format_value(value)) for value in row.values()] for row in rows]
    console = Console(highlight=False)
    room = console.width - 2 * len(names)  # a space on either side of each column
    for name, width in zip(names, _fit_columns([names, *cells], room), strict=True):
        shown.add_column(Text(name), header_style="dim", overflow="fold", width=width)
    for row in cells:
        shown.add_row(*map(Text, row))
    console.print(shown)


def _fit_columns(lines: Sequence[Sequence[str]], room: int) -> Sequence[int | None]:
    """Return widths of columns that cut no word, narrowing the widest columns first; None for each if the words don't fit."""
    from rich.cells import cell_len

    columns = [*zip(*lines, strict=True)]
    whole = [max(map(cell_len, column)) for column in columns]
    words = [max(cell_len(word) for text in column for word in (*text.split(), "-")) for column in columns]
    for widest in range(max(whole), 0, -1):
        widths = [max(word, min(each, widest)) for word, each in zip(words, whole, strict=True)]
        if sum(widths) <= room:
            return widths
    return [None] * len(columns)


def print_note(text: str) -> None:
    """Print one line for people on stderr, so that `--json` stays clean. Long lines are cut."""
    sys.stderr.write(cut_line(text) + "\n")
    sys.stderr.flush()


def note_printer() -> Callable[[str], None]:
    """Return a `print_note` that skips a line equal to the previous one."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            print_note(text)
        last = text

    return tell


def end_with_error(message: str, *, cause: str | None = None, code: int = 1) -> NoReturn:
    """End the command with an error message."""
    if JSON_OUTPUT.get():
        sys.stdout.write(json.dumps({"error": message, "cause": cause}) + "\n")
    else:
        sys.stderr.write(f"veilsum: {cut_line(message)}\n")
    raise typer.Exit(code)


_MODULES_OF_EXTRA = {
    "service": ("fastapi", "obstore", "sqlalchemy", "structlog", "uvicorn"),
    "training": ("sklearn", "torch"),
}


def require_extras(what: str, *extras: str) -> None:
    """End the command unless the modules of these extras are installed."""
    if any(find_spec(module) is None for extra in extras for module in _MODULES_OF_EXTRA[extra]):
        end_with_error(
            f"{what} needs packages that are not installed: pip install 'veilsum[{','.join(extras)}]'"
        )


_UNAUTHORISED_HINT = "Set VEILSUM_OPERATOR_TOKEN to a valid one, or name its file by `veilsum --token-file`"


@contextmanager
def reporting_errors(*, as_json: bool) -> Iterator[None]:
    """Report errors that a user can fix as messages. Other errors keep their traceback."""
    from pydantic import ValidationError

    from client_sdk.errors import ClientError
    from veilsum.calibration import CalibrationError
    from veilsum.protocol.errors import Misuse, PeerFault
    from veilsum.protocol.forms import first_fault

    before = JSON_OUTPUT.set(as_json)
    try:
        yield
    except PeerFault as fault:
        hint = f". {_UNAUTHORISED_HINT}" if fault.cause.value == "unauthorised" else ""
        end_with_error(f"{fault}{hint}", cause=fault.cause.value)
    except ValidationError as error:
        end_with_error(first_fault(error))
    except (Misuse, CalibrationError, ClientError) as error:
        end_with_error(str(error))
    except OSError as error:
        end_with_error(_of_system(error))
    except MemoryError as error:
        what = str(error) or "allocation failed"
        end_with_error(f"out of memory ({what}): use fewer classes or features, or a larger machine")
    except KeyboardInterrupt:
        end_with_error("stopped", code=130)
    finally:
        JSON_OUTPUT.reset(before)


def cut_line(text: str) -> str:
    """Put text on one line, and cut it after `SHOWN_MAX` characters."""
    more = len(text) - SHOWN_MAX
    return one_line(text[:SHOWN_MAX]) + (f" … and {more:,} characters more" if more > 0 else "")


def one_line(text: str) -> str:
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


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_format_value(item)}" for name, item in value.items())
    return str(value)


def format_time(moment_s: float | None) -> str:
    """Format a Unix time: time of day today, date and time otherwise."""
    if moment_s is None:
        return "–"
    try:
        moment = datetime.fromtimestamp(moment_s, UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # a coordinator may show any number
        return f"{moment_s:g} s"
    today = datetime.now(UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")
