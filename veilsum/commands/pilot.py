"""`veilsum pilot`: a consortium on one machine, from nothing to a round's end."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say


def pilot(
    folder: Annotated[Path, typer.Argument(help="Where the admin's and all members' keys go.")],
    member: Annotated[list[str], typer.Option(help="A member's id: a-z, 0-9 and '-'; three or more times.")],
    dim: Annotated[
        int | None,
        typer.Option(help="Features of a record.", min=1, show_default="open no round, only enrolment"),
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Classes; goes with --dim.", min=1)] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    extractor: Annotated[
        str | None,
        typer.Option(
            help="Digest of what made the features.", show_default="a name for nothing in particular"
        ),
    ] = None,
    withhold: Annotated[
        bool,
        typer.Option(
            "--withhold",
            help="Keep classes that few members hold out of the sum, as consortia do; of three members, those that fewer than all three hold.",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Try a whole consortium on one machine: make every key, publish the roster, open enrolment, then a round, and follow it.

    It shows the command of each member, and waits for them. Run it again for another round. Whoever runs it has everybody's key:
    for real, each makes their own, and nobody needs this command.
    """
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from protocol.rest import RoundRequest
        from veilsum.following import ended, formed
        from veilsum.names import extractor_digest
        from veilsum.opening import open_in_turn
        from veilsum.piloting import NOTHING, Pilot
        from veilsum.remote import operator
        from veilsum.round_view import line, show

        if (dim is None) != (classes is None):
            raise Misuse("--dim and --classes go together")
        digest = NOTHING if extractor is None else extractor_digest(extractor)
        made = Pilot(folder, tuple(member), digest, withhold)
        with operator(url, token, ca) as client:
            cohort = made.start(client)
            if dim is None or classes is None:
                facts = {"federation": cohort.federation, "cohort": cohort.cohort, "extractor": digest}
                say({**facts, "state": cohort.state}, as_json=json_, title="Pilot")
                return
            for name in made.members:
                note(f"{name} takes part by: veilsum member join {folder / name} --features FILE --url {url}")
            cohort = formed(client, cohort.cohort)
            if cohort.fault is not None:
                raise Misuse(f"enrolment failed: {cohort.fault.detail}; run this again for another cohort")
            request = RoundRequest(dim=dim, classes=classes, bias=bias, extractor=digest)
            view = open_in_turn(
                client, cohort.cohort, request, tell=lambda seen: note(f"counting, {line(seen)}")
            )
            view = ended(client, view.round)
        show(view, as_json=json_)
    if view.state != "done":
        raise typer.Exit(1)
