"""`veilsum ledger`: what was opened so far, and what would be refused next."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.console import AsJson, Ca, reported, say, table


def ledger(
    folder: Annotated[Path, typer.Argument(help="The member's identity (`veilsum identity new`).")],
    url: Annotated[
        str | None,
        typer.Option(
            envvar="VEILSUM_URL",
            help="The coordinator's address, for everybody's rounds.",
            show_default="only what is stored here",
        ),
    ] = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Show which rounds were opened over which members, this member's lineages, and what would be refused next."""
    with reported(as_json=json_):
        from veilsum.accounts import account_of, as_values

        account = account_of(folder, url, ca)
        values = as_values(account)
        if json_:
            say(values, as_json=True)
            return
        _show(values)


def _show(values: dict[str, Any]) -> None:
    for title, name in (("Rounds", "rounds"), ("Your lineages", "lineages"), ("Groups", "groups")):
        if values[name]:
            table(title, values[name])
    say(
        {"a_group_holds_at_least": f"{values['floor']} members"}
        | {str(number): text for number, text in enumerate(values["refused_next"], start=1)},
        as_json=False,
        title="What would be refused next",
    )
