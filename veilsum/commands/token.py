"""`veilsum operator token`: tokens for other operators of this coordinator."""

from typing import Annotated, Any

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, clock, note, reported, say, table

app = typer.Typer(
    help="For an operator with the scope 'admin': make, list and revoke operators' tokens.",
    no_args_is_help=True,
)
DAY_S = 86_400.0


@app.command()
def new(
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
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Make a token. It is shown once; the coordinator keeps only its hash."""
    with reported(as_json=json_):
        from veilsum.names import federation_id
        from veilsum.protocol.rest import TokenRequest
        from veilsum.remote import operator

        limit = None if federation is None else federation_id(federation)
        request = TokenRequest.model_validate(
            {"name": name, "scopes": scope, "lifetime_s": days * DAY_S, "federation": limit}
        )
        with operator(url, token, ca) as client:
            made = client.new_token(request)
        note("Shown only this once:")
        values: dict[str, Any] = {"secret": made.secret, "token": made.token, "scopes": list(made.scopes)}
        say(
            {**values, "expires": made.expires_s if json_ else clock(made.expires_s)},
            as_json=json_,
            title="Token",
        )


@app.command("list")
def list_(url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None, json_: AsJson = False) -> None:
    """Show every token that was ever made, without its secret."""
    with reported(as_json=json_):
        from veilsum.remote import operator

        with operator(url, token, ca) as client:
            found = client.tokens()
        if json_:
            say(found.model_dump(mode="json"), as_json=True)
        elif found.tokens:
            table(
                "Tokens",
                [
                    {
                        "token": each.token,
                        "name": each.name,
                        "scopes": list(each.scopes),
                        "federation": each.federation or "all",
                        "made": clock(each.created_s),
                        "expires": clock(each.expires_s),
                        "revoked": clock(each.revoked_s),
                    }
                    for each in found.tokens
                ],
            )
        else:
            note("None: the one that VEILSUM_OPERATOR_TOKEN sets is the only one.")


@app.command()
def revoke(
    name: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The token's id, from `veilsum operator token list`.")
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """End a token now."""
    with reported(as_json=json_):
        import re

        from veilsum.protocol.errors import Misuse
        from veilsum.protocol.rest import SHORT_ID_PATTERN
        from veilsum.remote import operator

        if not re.match(SHORT_ID_PATTERN, name):
            raise Misuse(
                "a token's id has 8 hexadecimal digits: `veilsum operator token list` shows it, not its secret"
            )
        with operator(url, token, ca) as client:
            ended = client.revoke_token(name)
        say(
            {
                "token": ended.token,
                "name": ended.name,
                "revoked": ended.revoked_s if json_ else clock(ended.revoked_s),
            },
            as_json=json_,
            title="Token, revoked",
        )
