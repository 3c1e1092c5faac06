"""`veilsum identity`: who a member is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.console import AsJson, reported, say

if TYPE_CHECKING:
    from client_sdk import Identity

app = typer.Typer(help="A member's identity: an Ed25519 key in a folder of its own.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The identity's folder.")]


@app.command()
def new(
    folder: Folder,
    member: Annotated[str, typer.Option(help="The member's id: a-z, 0-9 and '-'.")],
    admin_key: Annotated[
        str | None,
        typer.Option(help="Pin the admin's public key for `veilsum join`.", show_default="pass it there"),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Make an identity; give its public key to the federation's admin."""
    with reported(as_json=json_):
        from client_sdk import Identity
        from veilsum.names import admin_key as checked
        from veilsum.pinning import pin

        key = None if admin_key is None else checked(admin_key)
        made = Identity.create(folder, member)
        if key is not None:
            pin(made.folder, key)
        _show(made, as_json=json_)


@app.command()
def show(folder: Folder, json_: AsJson = False) -> None:
    """Show an identity's id and public key."""
    with reported(as_json=json_):
        from client_sdk import Identity

        _show(Identity.load(folder), as_json=json_)


def _show(identity: "Identity", *, as_json: bool) -> None:
    values = {
        "member": identity.member,
        "public_key": identity.public.hex(),
        "fingerprint": identity.fingerprint,
        "folder": str(identity.folder),
    }
    say(values, as_json=as_json, title="Identity")
