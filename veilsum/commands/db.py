"""`veilsum db`: the coordinator's database as the environment's settings name it."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.console import AsJson, fail, reported, say

if TYPE_CHECKING:
    from service.storage.operating import Tables

app = typer.Typer(help="Look at the coordinator's database, and change its tables.", no_args_is_help=True)


@app.command("current")
def current(json_: AsJson = False) -> None:
    """Say at which revision the tables are, and which one this release works with."""
    _do(json_, lambda tables: tables.revisions())


@app.command("upgrade")
def upgrade(json_: AsJson = False) -> None:
    """Bring the tables to this release's revision, as every start does."""
    _do(json_, lambda tables: tables.upgrade())


@app.command("downgrade")
def downgrade(
    revision: Annotated[str, typer.Argument(help="Where to: `base` drops all tables.")],
    yes: Annotated[bool, typer.Option("--yes", help="What newer revisions keep is to be lost.")] = False,
    json_: AsJson = False,
) -> None:
    """Bring the tables back to an older revision. What newer ones keep is lost: make a backup before."""
    if not yes:
        fail(f"this loses what revisions after {revision} keep: say --yes", as_json=json_)
    _do(json_, lambda tables: tables.downgrade(revision))


def _do(json_: bool, work: "Callable[[Tables], Coroutine[Any, Any, dict[str, Any]]]") -> None:
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
