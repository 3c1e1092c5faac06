"""`veilsum round`: the operator opens a round and watches it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.commands import combining, opening, schedules
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say

app = typer.Typer(help="The operator's side: one secure sum.", no_args_is_help=True)
RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")]

app.command("open")(opening.open_)


@app.command()
def questions(json_: AsJson = False) -> None:
    """List what a round can ask: what follows, what the coordinator learns, its parameters, what it rests on."""
    with reported(as_json=json_):
        from veilsum.asking import listed

        say(listed(), as_json=json_, title="What a round can ask")


@app.command()
def status(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show a round as it stands."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show

        with operator(url, ca=ca) as client:
            show(client.round(names.round_id(round_id)), as_json=json_)


@app.command()
def watch(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Follow a round to its end, or until it waits for the admin; exit code 1 unless it ended with a result."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.following import ended
        from veilsum.remote import operator
        from veilsum.round_view import show

        with operator(url, ca=ca) as client:
            view = ended(client, names.round_id(round_id))
        show(view, as_json=json_)
    if view.state != "done":
        raise typer.Exit(1)


@app.command()
def result(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show what the coordinator signed about a finished round; members verify it against their own evidence."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.asking import promised
        from veilsum.rare import rare_classes
        from veilsum.remote import operator

        with operator(url, ca=ca) as client:
            record = client.result(names.round_id(round_id))
        if json_:
            say(record.model_dump(mode="json"), as_json=True)
            return
        say(
            {
                "round": record.round,
                "statistic": record.statistic,
                "survivors": [survivor.member for survivor in record.survivors],
                "evicted": record.evicted,
                "dropped": record.dropped,
                "records": record.records,
                "rare_classes": rare_classes(record.withheld, record.rare),
                "classes_without_records": record.solution.empty_classes,
                "ridge": record.solution.ridge,
                "chosen_by": record.solution.chosen_by,
                "documents": [view.name for view in record.documents],
                **promised(record.noise),
            },
            as_json=False,
            title="Result, as the coordinator signed it",
        )


@app.command()
def cancel(
    round_id: RoundId,
    reason: Annotated[str, typer.Option(help="Why; shown to everybody.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Give a round up: its decryptors are asked to sign VOID."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show

        with operator(url, token, ca) as client:
            show(client.cancel(names.round_id(round_id), reason), as_json=json_)


@app.command()
def extend(
    round_id: RoundId,
    by: Annotated[float, typer.Option(help="Seconds to add to the present deadline.", min=1)],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Give the phase that a round is in more time, up to the terms' latest end."""
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show

        with operator(url, token, ca) as client:
            view = client.round(names.round_id(round_id))
            if view.deadline_s is None:
                raise Misuse(f"round {view.round} is {view.state} and waits for no time")
            show(client.extend(view.round, view.deadline_s + by), as_json=json_)


@app.command()
def lost(
    round_id: RoundId,
    folder: Annotated[
        Path | None,
        typer.Option(help="The admin's folder: sign and close it.", show_default="only show the reports"),
    ] = None,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete",
            help="Sign although fewer decryptors than needed have reported; with helpers, once all were asked.",
        ),
    ] = False,
    roster: Annotated[
        Path | None,
        typer.Option(help="The signed roster of the round's cohort.", show_default="the newest published"),
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Show who reported what of a lost round; as its admin, sign over the reports, so that the federation goes on."""
    with reported(as_json=json_):
        from protocol.messages import Roster
        from veilsum import names
        from veilsum.admin import load_admin
        from veilsum.lost import HelperPapers, Papers
        from veilsum.remote import operator

        name = names.round_id(round_id)
        known = Roster.from_bytes(roster.read_bytes()) if roster else None
        admin = load_admin(folder) if folder is not None else None
        with operator(url, ca=ca, admin=admin) as client:
            with_helpers = client.round(name).mode == "helpers"
            papers = (HelperPapers if with_helpers else Papers).fetch(client, name, known)
            values: dict[str, Any] = {"round": name, **papers.values()}
            if folder is None:
                values["state"] = client.round(name).state
                note("Not signed: the admin closes it with --folder ADMIN.")
            else:
                values["state"] = client.close_lost(name, papers.sign(folder, incomplete=incomplete)).state
        say(values, as_json=json_, title="Lost round")


@app.command()
def exception(
    cohort: Annotated[str, typer.Argument(help="The cohort's id.")],
    member: Annotated[
        list[str],
        typer.Option(help="A member of the group; repeat for all of them, as the refusal names them."),
    ],
    reason: Annotated[str, typer.Option(help="What becomes readable, and why; every member sees it.")],
    folder: Annotated[Path, typer.Option(help="The admin's folder.")],
    output: Annotated[Path, typer.Option(help="Where the signed exception goes.")],
    sequence: Annotated[
        int | None, typer.Option(help="The round's sequence number.", min=0, show_default="the cohort's next")
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """As the admin, sign that one round may expose the group of exactly these members; who is named may still refuse it."""
    with reported(as_json=json_):
        from protocol.messages import LedgerException
        from veilsum.admin import load_admin
        from veilsum.names import cohort_id
        from veilsum.remote import operator

        admin, cohort = load_admin(folder), cohort_id(cohort)
        if sequence is None:
            with operator(url, ca=ca) as client:
                sequence = client.cohort(cohort).next_sequence
        signed = LedgerException.make(
            admin,
            federation=admin.public,
            cohort=bytes.fromhex(cohort),
            sequence=sequence,
            members=tuple(sorted(set(member))),
            reason=reason,
        )
        # What could not be read back is refused here, not by everybody else.
        output.write_bytes(LedgerException.from_bytes(signed.to_bytes()).to_bytes())
        say(
            {
                "exception": str(output),
                "cohort": cohort,
                "sequence": sequence,
                "members": list(signed.members),
                "reason": signed.reason,
            },
            as_json=json_,
            title="Exception, signed",
        )


@app.command()
def transcript(
    round_id: RoundId,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the transcript goes, a JSON file.")],
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Fetch the signed transcript of a round that has ended; `veilsum verify` replays it."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator

        name = names.round_id(round_id)
        with operator(url, ca=ca) as client:
            content = client.transcript(name)
        output.write_bytes(content)
        say(
            {"round": name, "saved": str(output), "bytes": len(content)},
            as_json=json_,
            title="Transcript, not yet replayed: `veilsum verify` does it",
        )


app.command("combine")(combining.combine)
app.command("combined")(combining.combined)
app.add_typer(schedules.app, name="schedules")
