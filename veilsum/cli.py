"""The one command. Subcommands import what they need when they run, so that `--help` answers at once."""

import io
import sys
from typing import Annotated

import typer

from veilsum.commands import (
    audit,
    backup,
    bench,
    calibrate,
    cohort,
    db,
    demo,
    federation,
    helper,
    identity,
    join,
    ledger,
    pilot,
    privacy,
    report,
    round_,
    serve,
    speak,
    token,
    train,
    verify,
)
from veilsum.console import CLIENT, TOKEN, ClientCert, ClientKey, TokenFile, token_in

app = typer.Typer(
    name="veilsum",
    help="Calibrate a shared classifier head from sums: the coordinator sees masked uploads and the total.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold keys
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's form
    if wanted:
        from importlib.metadata import version

        from protocol.tags import PROTOCOL_VERSION

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
    CLIENT.set((client_cert, client_key))
    TOKEN.set(token_in(token_file))


app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("pilot")(pilot.pilot)
app.add_typer(backup.app, name="backup")
app.add_typer(db.app, name="db")
app.add_typer(federation.app, name="federation")
app.add_typer(identity.app, name="identity")
app.add_typer(cohort.app, name="cohort")
app.add_typer(round_.app, name="round")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(privacy.app, name="privacy")
app.add_typer(bench.app, name="bench")
app.command("join")(join.join)
app.add_typer(helper.app, name="helper")
app.command("speak")(speak.speak)
app.command("verify")(verify.verify)
app.command("ledger")(ledger.ledger)
app.command("calibrate")(calibrate.calibrate)
app.command("train")(train.train)
app.command("report")(report.report)


def main() -> None:
    """Run the command line. What a terminal's encoding has no letter for is shown as another."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
