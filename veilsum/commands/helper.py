"""`veilsum helper`: one of the four servers that take the masks off."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands.options import AdminKey
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say

app = typer.Typer(
    help="A mask helper's side: four servers, of four organisations that do not collude.",
    no_args_is_help=True,
)
Folder = Annotated[
    Path, typer.Argument(help="The helper's identity (`veilsum identity new`), named by the roster.")
]


@app.command()
def run(
    folder: Folder,
    admin_key: AdminKey = None,
    attempts: Annotated[
        int | None, typer.Option(help="Stop after so many attempts.", min=1, show_default="never")
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Serve every round with helpers of the federation; after any interruption it goes on where it stopped.

    Never restore its folder from a backup: it could vote twice. A lost folder is a new identity in a new roster.
    """
    with reported(as_json=json_):
        from veilsum.pinning import pinned
        from veilsum.speaking import run_helper

        say(run_helper(folder, url, pinned(folder, admin_key), attempts, ca), as_json=json_, title="Helper")


@app.command()
def show(folder: Folder, json_: AsJson = False) -> None:
    """Show what a helper holds and what it has signed, which the admin asks for before closing a round that is stuck."""
    with reported(as_json=json_):
        from veilsum.speaking import helper_state

        say(helper_state(folder), as_json=json_, title="Helper")
