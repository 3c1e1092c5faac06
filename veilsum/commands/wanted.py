"""The study that an operator names: by its signed file, its name or its hash."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from client_sdk.operator import Operator
    from veilsum.protocol.rest import StudyView

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="The study's name or hash, or its signed .bin file.")
]
Federation = Annotated[
    str | None,
    typer.Option(
        envvar="VEILSUM_FEDERATION",
        help="The federation's id.",
        show_default="the coordinator's only one, or the signed file's",
    ),
]


def wanted_study(client: "Operator", study: str, federation: str | None) -> "tuple[StudyView, str]":
    """Find a study, and the federation that it is of. Without a file or option it is of the coordinator's only federation."""
    from veilsum.commands.admin import signed_in
    from veilsum.names import federation_id
    from veilsum.protocol.errors import Misuse
    from veilsum.protocol.messages import Study
    from veilsum.running import find_study

    path = Path(study)
    if path.is_file():
        signed = signed_in(path)
        if not isinstance(signed, Study):
            raise Misuse(f"{path} is a roster, expected a signed study")
        if federation is not None and federation_id(federation) != signed.federation.hex():
            raise Misuse(f"{path} is a study of another federation, {signed.federation.hex()}")
        return find_study(client, signed.federation.hex(), signed.hash.hex()), signed.federation.hex()
    name = _only(client) if federation is None else federation_id(federation)
    return find_study(client, name, study), name


def _only(client: "Operator") -> str:
    from veilsum.protocol.errors import Misuse

    found = client.coordinator().federations
    if len(found) != 1:
        known = (
            "no federation: publish its roster first"
            if not found
            else f"{len(found)} federations: pass --federation"
        )
        raise Misuse(f"the coordinator has {known}")
    return found[0]
