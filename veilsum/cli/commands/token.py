"""`veilsum operator token`: manage tokens for other operators of this coordinator."""

import re
from typing import Annotated

import typer

from veilsum.cli import names
from veilsum.cli.console import JSON_OUTPUT, format_time, print_note, print_table, print_values
from veilsum.cli.options import Connect, at_coordinator
from veilsum.protocol.errors import Misuse

app = typer.Typer(
    help="For an operator with the scope 'admin': make, list and revoke operators' tokens.",
    no_args_is_help=True,
)


@app.command()
@at_coordinator(token=True)
def new(
    connect: Connect,
    name: Annotated[str, typer.Argument(help="A label for people: the holder or the purpose.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="What it may do: sums, audit (the log), rounds (cohorts too), federations, admin (everything); repeat."
        ),
    ],
    federation: Annotated[
        str | None, typer.Option(help="The only federation that it works for.", show_default="all")
    ] = None,
    days: Annotated[float, typer.Option(help="Days until it expires.", min=0, max=366)] = 90.0,
) -> None:
    """Create a token. It is shown once; the coordinator keeps only its hash."""
    from veilsum.protocol.rest import TokenRequest
    from veilsum.protocol.study import DAY_S

    limit = None if federation is None else names.federation_id(federation)
    request = TokenRequest.model_validate(
        {"name": name, "scopes": scope, "lifetime_s": days * DAY_S, "federation": limit}
    )
    with connect() as client:
        made = client.new_token(request)
    print_note("Shown only this once:")
    expires = made.expires_s if JSON_OUTPUT.get() else format_time(made.expires_s)
    values = {"secret": made.secret, "token": made.token, "scopes": list(made.scopes), "expires": expires}
    print_values(values, "Token")


@app.command("list")
@at_coordinator(token=True)
def list_(connect: Connect) -> None:
    """List all tokens ever created, without their secrets."""
    with connect() as client:
        found = client.tokens()
    rows = [
        {
            "token": each.token,
            "name": each.name,
            "scopes": list(each.scopes),
            "federation": each.federation or "all",
            "made": format_time(each.created_s),
            "expires": format_time(each.expires_s),
            "revoked": format_time(each.revoked_s),
        }
        for each in found.tokens
    ]
    empty = "None. The only valid token is the one in VEILSUM_OPERATOR_TOKEN."
    print_table("Tokens", rows, empty=empty, scripts=found.model_dump(mode="json"))


@app.command()
@at_coordinator(token=True)
def revoke(
    connect: Connect,
    name: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The token's id, from `veilsum operator token list`.")
    ],
) -> None:
    """Revoke a token immediately."""
    from veilsum.protocol.forms import SHORT_ID_PATTERN

    if not re.match(SHORT_ID_PATTERN, name):
        raise Misuse(
            "a token's id has 8 hexadecimal digits: `veilsum operator token list` shows it, not its secret"
        )
    with connect() as client:
        ended = client.revoke_token(name)
    revoked = ended.revoked_s if JSON_OUTPUT.get() else format_time(ended.revoked_s)
    print_values({"token": ended.token, "name": ended.name, "revoked": revoked}, "Token, revoked")
