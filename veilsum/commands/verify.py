"""`veilsum verify`: check a saved result again, offline."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, reported, say


def verify(
    folder: Annotated[
        Path, typer.Argument(help="A result's folder, as `veilsum join` or `veilsum speak` saved it.")
    ],
    admin_key: Annotated[
        str | None, typer.Option(envvar="VEILSUM_ADMIN_KEY", help="The admin's public key that you pinned.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Check signatures, certificate, record and weights of a saved result; exit code 1 if one does not hold."""
    with reported(as_json=json_):
        from veilsum import names  # noqa: PLC0415 - `--help` stays quick
        from veilsum.speaking import verified  # noqa: PLC0415 - as above

        pinned = None if admin_key is None else bytes.fromhex(names.admin_key(admin_key))
        values = verified(folder, pinned)
        federation = (
            "the pinned admin key" if pinned else "the roster's own admin key; pass --admin-key to pin it"
        )
        say({"verified_against": federation, **values}, as_json=json_, title="Verified")
