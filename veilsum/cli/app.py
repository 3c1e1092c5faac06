"""The `veilsum` command. Subcommands import most modules when they run, so `--help` is fast."""

import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from veilsum.cli.commands import (
    admin,
    calibrate,
    demo,
    member,
    operator,
    pilot,
    privacy,
    serve,
    train,
    verify,
)
from veilsum.cli.console import CLIENT_CERTIFICATE
from veilsum.cli.options import OPERATOR_TOKEN, ClientCert, ClientKey, TokenFile, token_in


class _Commands(TyperGroup):
    """Refuses empty arguments: they often come from unset variables, and an empty path would mean the current folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(re.fullmatch("(--[a-z-]+=)?", each) for each in args):
            raise typer.BadParameter(
                "an argument is empty: set the variable that it comes from, or leave it out"
            )
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="veilsum",
    cls=_Commands,
    help="Fit a shared classifier head from sums that a federation's members mask: the coordinator sees totals only.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold keys
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's form
    if wanted:
        from importlib.metadata import version

        from veilsum.protocol.tags import PROTOCOL_VERSION

        typer.echo(f"veilsum {version('veilsum')}, protocol version {PROTOCOL_VERSION}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Print the versions of veilsum and of its protocol.",
        callback=_print_version,
        is_eager=True,
    ),
]


@app.callback()
def _common(
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    token_file: TokenFile = None,
    *,
    version: Version = False,
) -> None:
    del version  # printed
    CLIENT_CERTIFICATE.set((client_cert, client_key))
    OPERATOR_TOKEN.set(token_in(token_file))


app.command("demo", rich_help_panel="Anyone")(demo.demo)
app.command("pilot", rich_help_panel="Anyone")(pilot.pilot)
app.command("calibrate", rich_help_panel="Anyone")(calibrate.calibrate)
app.command("verify", rich_help_panel="Anyone")(verify.verify)
app.command("privacy", rich_help_panel="Anyone")(privacy.privacy)
app.command("train", rich_help_panel="Anyone")(train.train)
app.add_typer(admin.app, name="admin", rich_help_panel="Admin")
# Typer lists an app's commands before its groups; a group without a name keeps its commands in place.
operating = typer.Typer()
operating.command("serve", rich_help_panel="Operator")(serve.serve)
operating.add_typer(operator.app, name="operator", rich_help_panel="Operator")
app.add_typer(operating)
app.add_typer(member.app, name="member", rich_help_panel="Member")
