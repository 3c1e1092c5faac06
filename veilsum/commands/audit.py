"""`veilsum operator audit`: who did what at this coordinator, and whether the log is whole."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, reported, say

app = typer.Typer(
    help="For an operator or auditor with the scope 'read': export and verify the audit log.",
    no_args_is_help=True,
)
Key = Annotated[
    str | None,
    typer.Option(
        "--coordinator-key", help="The coordinator's public key.", show_default="as the coordinator says"
    ),
]


@app.command()
def export(
    output: Annotated[Path, typer.Argument(help="Where the log goes, a JSON file.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Fetch the whole log into a file, with its signed head."""
    with reported(as_json=json_):
        from veilsum.auditing import fetch
        from veilsum.remote import operator

        with operator(url, token, ca) as client:
            page = fetch(client)
        output.write_text(page.model_dump_json(indent=1) + "\n", "utf-8")
        say(
            {
                "log": str(output),
                "entries": len(page.entries),
                "head": f"{page.head.number}:{page.head.head}",
            },
            as_json=json_,
            title="Audit log, not yet verified",
        )


@app.command()
def verify(
    log: Annotated[
        Path | None, typer.Argument(help="A file that export wrote.", show_default="ask the coordinator")
    ] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="A head that was noted before, NUMBER:HASH; repeat.")
    ] = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Check the chain from its first entry, and that it holds every head that was noted; note the one it prints."""
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from veilsum.auditing import check, fetch, load, noted
        from veilsum.names import coordinator_key
        from veilsum.remote import operator

        known = tuple(map(noted, head or ()))
        if log is not None:
            if key is None:
                raise Misuse("a file is checked with --coordinator-key, which rosters name")
            page, signer = load(log), key
        else:
            with operator(url, token, ca) as client:
                page, signer = fetch(client), key or client.coordinator().public_key
        end = check(page, bytes.fromhex(coordinator_key(signer)), known)
        say(
            {
                "entries": len(page.entries),
                "whole": True,
                "heads_held": len(known),
                "head": f"{end.number}:{end.head}",
            },
            as_json=json_,
            title="Audit log",
        )
