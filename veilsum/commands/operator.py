"""`veilsum operator`: who runs a coordinator, its rounds and its data."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.commands import audit, cohort, round_, token
from veilsum.console import AsJson, fail, reported, say

if TYPE_CHECKING:
    from service.storage.operating import Tables

app = typer.Typer(help="For the operator, who runs a coordinator and opens its rounds.", no_args_is_help=True)
backups = typer.Typer(
    help="For the operator: back up the data folder of a stopped coordinator, and restore it.",
    no_args_is_help=True,
)
database = typer.Typer(
    help="For the operator: look at the coordinator's database, as its settings name it, and change its tables.",
    no_args_is_help=True,
)
app.add_typer(cohort.app, name="cohort")
app.add_typer(round_.app, name="round")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(backups, name="backup")
app.add_typer(database, name="db")
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="VEILSUM_DATA_DIR", help="The coordinator's data folder.", show_default="veilsum-data"
    ),
]


@backups.command()
def create(
    archive: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    data_dir: DataDir = Path("veilsum-data"),
    json_: AsJson = False,
) -> None:
    """Write everything of a stopped coordinator's folder to one file. The coordinator's key is in it: keep it as a secret.

    For SQLite and files. With PostgreSQL and S3, use their own backups.
    """
    _archive("create", json_, lambda work: work.create(data_dir, archive), "Backup")


@backups.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `veilsum operator backup create` wrote.")],
    data_dir: DataDir = Path("veilsum-data"),
    json_: AsJson = False,
) -> None:
    """Make a data folder of a backup, checked file by file. Afterwards cancel the rounds that were live when it was made.

    Members may have seen more of those than the backup knows: they refuse what contradicts it, and new rounds go on.
    """
    _archive("restore", json_, lambda work: work.restore(archive, data_dir), "Restored")


def _archive(name: str, as_json: bool, work: Callable[[Any], dict[str, Any]], title: str) -> None:
    try:
        from veilsum import backup
    except ImportError:
        fail(f"backup {name} needs the coordinator's extra: pip install 'veilsum[service]'", as_json=as_json)
    with reported(as_json=as_json):
        say(work(backup), as_json=as_json, title=title)


@database.command("current")
def current(json_: AsJson = False) -> None:
    """Say at which revision the tables are, and which one this release works with."""
    _change(json_, lambda tables: tables.revisions())


@database.command("upgrade")
def upgrade(json_: AsJson = False) -> None:
    """Bring the tables to this release's revision, as every start does."""
    _change(json_, lambda tables: tables.upgrade())


@database.command("downgrade")
def downgrade(
    revision: Annotated[str, typer.Argument(help="Where to: `base` drops all tables.")],
    yes: Annotated[bool, typer.Option("--yes", help="What newer revisions keep is to be lost.")] = False,
    json_: AsJson = False,
) -> None:
    """Bring the tables back to an older revision. What newer ones keep is lost: make a backup before."""
    if not yes:
        fail(f"this loses what revisions after {revision} keep: say --yes", as_json=json_)
    _change(json_, lambda tables: tables.downgrade(revision))


def _change(json_: bool, work: "Callable[[Tables], Coroutine[Any, Any, dict[str, Any]]]") -> None:
    import asyncio

    with reported(as_json=json_):
        say(asyncio.run(work(_tables(json_))), as_json=json_, title="Database")


def _tables(json_: bool) -> "Tables":
    try:
        from service.storage.operating import Tables
    except ImportError:
        fail("the coordinator needs its extra: pip install 'veilsum[service]'", as_json=json_)
    from service.settings import Settings

    return Tables(Settings())
