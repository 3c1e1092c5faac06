"""`veilsum operator`: run studies at a coordinator, and look after its data."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.commands import audit, cohort, round_, token
from veilsum.commands.cohort import Federation, StudyName, wanted_study
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, fail, note, notes, reported, say

app = typer.Typer(help="Run studies at a coordinator, and look after its data.", no_args_is_help=True)
backups = typer.Typer(
    help="Back up the data folder of a stopped coordinator, and restore it.", no_args_is_help=True
)
database = typer.Typer(
    help="Check the coordinator's database; show and upgrade its format.", no_args_is_help=True
)


@app.command()
def run(
    study: StudyName,
    federation: Federation = None,
    period: Annotated[
        str | None, typer.Option(help="Which records are summed.", show_default="this month, e.g. 2026-11")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Run a study: open enrolment, then each step in turn, and follow it to the result. Failed attempts are retried or repeated.

    You can interrupt the command: started again, it finds the run and continues. Exits with 1 unless there is a result.
    """
    with reported(as_json=json_):
        from veilsum.remote import PATIENT_S, operator
        from veilsum.round_view import line, show_round, summary
        from veilsum.running import Following, this_month

        tell = notes()
        with operator(url, token, ca, patience_s=PATIENT_S) as client:
            found, of = wanted_study(client, study, federation)
            following = Following(client, lambda seen: tell(seen if isinstance(seen, str) else line(seen)))
            try:
                view = following.run(of, found, period or this_month())
            except KeyboardInterrupt:
                note("The run is interrupted. The same command continues it.")
                raise
            if view.state == "done":
                record = client.result(view.round)
                values = record.model_dump(mode="json") if json_ else summary(record)
                say(values, as_json=json_, title="Result, as the coordinator signed it")
                return
        show_round(view, as_json=json_)
    raise typer.Exit(1)


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
    """Write a stopped coordinator's data folder to one file. It contains the coordinator's key: keep it secret.

    For SQLite and files. With PostgreSQL and S3, use their own backups.
    """
    _archive("create", json_, lambda work: work.create(data_dir, archive), "Backup")


@backups.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `veilsum operator backup create` wrote.")],
    data_dir: DataDir = Path("veilsum-data"),
    coordinator_key: Annotated[
        str | None, typer.Option(help="The coordinator's public key, which must have signed the backup.")
    ] = None,
    unauthenticated: Annotated[
        bool,
        typer.Option(
            "--unauthenticated",
            help="Skip the signature check. Only for an archive from a place that you trust.",
        ),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Restore a backup into a new data folder, and check its signature and each file. Cancel the rounds that were open when it was made.

    `veilsum serve`, rosters and `backup create` show the coordinator's public key. Do not take it from the backup. Members that know a longer history than the backup hand it back, and refuse anything that contradicts it.
    """

    def work(backup: Any) -> dict[str, Any]:
        from veilsum.names import public_key
        from veilsum.protocol.errors import Misuse

        if unauthenticated is (coordinator_key is not None):
            raise Misuse("name the key that signed the backup by --coordinator-key, or say --unauthenticated")
        key = None if coordinator_key is None else bytes.fromhex(public_key(coordinator_key))
        restored: dict[str, Any] = backup.restore(archive, data_dir, key)
        return restored

    _archive("restore", json_, work, "Restored")


def _archive(name: str, as_json: bool, work: Callable[[Any], dict[str, Any]], title: str) -> None:
    try:
        from veilsum import backup
    except ImportError:
        fail(f"backup {name} needs the coordinator's extra: pip install 'veilsum[service]'", as_json=as_json)
    with reported(as_json=as_json):
        say(work(backup), as_json=as_json, title=title)


@database.command("current")
def current(json_: AsJson = False) -> None:
    """Show the format of the database, and the one that this release works with."""
    _on_database(json_, lambda settings, _, stores: stores.formats(settings))


@database.command("upgrade")
def upgrade(json_: AsJson = False) -> None:
    """Upgrade the database to this release's format, as every start does."""
    _on_database(json_, lambda settings, _, stores: stores.formats(settings, upgrade=True))


@database.command("check")
def check(json_: AsJson = False) -> None:
    """Look over the database's file and rows, and name what is damaged. Changes nothing; exits with 1 if anything is damaged."""
    if _on_database(json_, lambda settings, checking, _: checking.check(settings))["damaged"]:
        raise typer.Exit(1)


def _on_database(
    as_json: bool, work: Callable[[Any, Any, Any], Coroutine[Any, Any, dict[str, Any]]]
) -> dict[str, Any]:
    import asyncio

    try:
        from service import checking
        from service.settings import Settings
        from service.storage import stores
    except ImportError:
        fail("the coordinator needs its extra: pip install 'veilsum[service]'", as_json=as_json)
    with reported(as_json=as_json):
        found = asyncio.run(work(Settings(), checking, stores))
        say(found, as_json=as_json, title="Database")
    return found
