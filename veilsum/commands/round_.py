"""`veilsum operator round`: the operator opens a round and watches it."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands import combining, opening
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, reported, say

app = typer.Typer(
    help="For the operator: open a secure sum, and follow it to its result.", no_args_is_help=True
)
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
