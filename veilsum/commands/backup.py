"""`veilsum backup`: a coordinator's data folder as one file, and back."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.console import AsJson, fail, reported, say

app = typer.Typer(help="Back a coordinator's data folder up, and restore it.", no_args_is_help=True)
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="VEILSUM_DATA_DIR", help="The coordinator's data folder.", show_default="veilsum-data"
    ),
]


@app.command()
def create(
    archive: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    data_dir: DataDir = Path("veilsum-data"),
    json_: AsJson = False,
) -> None:
    """Write everything of a stopped coordinator's folder to one file. The coordinator's key is in it: keep it as a secret.

    For SQLite and files. With PostgreSQL and S3, use their own backups.
    """
    _do("create", json_, lambda work: work.create(data_dir, archive), "Backup")


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `veilsum backup create` wrote.")],
    data_dir: DataDir = Path("veilsum-data"),
    json_: AsJson = False,
) -> None:
    """Make a data folder of a backup, checked file by file. Afterwards cancel the rounds that were live when it was made.

    Members may have seen more of those than the backup knows: they refuse what contradicts it, and new rounds go on.
    """
    _do("restore", json_, lambda work: work.restore(archive, data_dir), "Restored")


def _do(name: str, as_json: bool, work: Callable[[Any], dict[str, Any]], title: str) -> None:
    try:
        from veilsum import backup
    except ImportError:
        fail(f"backup {name} needs the coordinator's extra: pip install 'veilsum[service]'", as_json=as_json)
    with reported(as_json=as_json):
        say(work(backup), as_json=as_json, title=title)
