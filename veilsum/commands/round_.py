"""`veilsum operator round`: open and watch a single step of a run."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, notes, reported, say

app = typer.Typer(
    help="Open and watch secure sums, step by step; `veilsum operator run` does all of it.",
    no_args_is_help=True,
)
RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")]


@app.command("open")
def open_(
    cohort: Annotated[str, typer.Argument(metavar="COHORT", help="The cohort's id.")],
    lifetime_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds until the latest end, when decryptors erase their keys.", show_default="an hour"
        ),
    ] = None,
    heard_within_s: Annotated[
        float | None,
        typer.Option(
            help="Open only if enough decryptors were heard from within this many seconds.",
            min=60,
            show_default="members may start later",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Open nothing: show what would be opened, and what it costs.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open the next step of a cohort's run, or the next attempt at it. The study says what it sums."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import operator
        from veilsum.round_view import show_preflight, show_round

        name = cohort_id(cohort)
        with operator(url, token, ca) as client:
            if dry_run:
                view = client.preflight(name, lifetime_s=lifetime_s, heard_within_s=heard_within_s)
                show_preflight(view, as_json=json_)
                return
            opened = client.open_round(name, lifetime_s=lifetime_s, heard_within_s=heard_within_s)
        show_round(opened, as_json=json_)


@app.command()
def status(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show a round as it stands."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show_round

        with operator(url, ca=ca) as client:
            show_round(client.round(names.round_id(round_id)), as_json=json_)


@app.command()
def watch(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Follow a round to its end, or until it waits for the admin. Exits with 1 unless it ended with a result."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import changes, operator
        from veilsum.round_view import line, show_round

        name = names.round_id(round_id)
        with operator(url, ca=ca) as client:
            tell, views = notes(), changes(lambda after: client.round(name, after))
            while not (view := next(views)).ended and view.state != "erasing":
                tell(line(view))
        show_round(view, as_json=json_)
    if view.state != "done":
        raise typer.Exit(1)


@app.command()
def result(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show the signed record of a finished round. Members verify it against their own evidence."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import summary

        with operator(url, ca=ca) as client:
            record = client.result(names.round_id(round_id))
        values = record.model_dump(mode="json") if json_ else summary(record)
        say(values, as_json=json_, title="Result, as the coordinator signed it")


@app.command()
def cancel(
    round_id: RoundId,
    reason: Annotated[str, typer.Option(help="Why; shown to everyone.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Cancel a round: its decryptors are asked to sign VOID."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show_round

        with operator(url, token, ca) as client:
            show_round(client.cancel(names.round_id(round_id), reason), as_json=json_)


@app.command()
def extend(
    round_id: RoundId,
    by: Annotated[float, typer.Option(help="Seconds to add to the present deadline.", min=1)],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Extend the deadline of a round's present phase, at most to the latest end."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.protocol.errors import Misuse
        from veilsum.remote import operator
        from veilsum.round_view import show_round

        with operator(url, token, ca) as client:
            view = client.round(names.round_id(round_id))
            if view.deadline_s is None:
                raise Misuse(f"round {view.round} is {view.state} and has no deadline")
            show_round(client.extend(view.round, view.deadline_s + by), as_json=json_)


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
            {
                "round": name,
                "saved": str(output),
                "bytes": len(content),
                "next": f"veilsum verify {output}",
            },
            as_json=json_,
            title="Transcript, not yet verified",
        )


@app.command()
def combine(
    rounds: Annotated[
        list[str], typer.Argument(metavar="ROUND...", help="Final rounds of two or more periods.")
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Add up the exact sums of several periods of one question, and solve for one head."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator

        ids = list(map(names.round_id, rounds))
        with operator(url, token, ca) as client:
            record = client.combine(client.round(ids[0]).federation, ids)
        say(
            {
                "combination": record.combination,
                "study": record.name,
                "periods": [part.period for part in record.parts],
                "rounds": [part.round for part in record.parts],
                "rows": record.rows,
                "ridge": record.solution.ridge,
            },
            as_json=json_,
            title="Combination",
        )


@app.command()
def combined(
    combination: Annotated[str, typer.Argument(help="The combination's id.")],
    folder: Annotated[Path, typer.Option(help="A member's identity that took part in each period.")],
    output: Annotated[Path, typer.Option(help="Where the head goes, a safetensors file.")],
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """As a member, fetch a combination and verify it against the evidence of each of its rounds."""
    with reported(as_json=json_):
        from client_sdk import Identity, Result
        from client_sdk.combined import Combined
        from client_sdk.store import Store
        from veilsum import names
        from veilsum.commands.member import pinned
        from veilsum.remote import operator

        key = pinned(folder, None)
        identity = Identity.load(folder)
        store = Store(identity.folder)
        with operator(url, ca=ca, member=identity) as client:
            record, weights = client.combination(names.round_id(combination))
        found = Combined(record, weights)
        found.verify([Result.load(store.results(part.round)) for part in record.parts], key)
        output.write_bytes(weights)
        say(
            {
                "combination": record.combination,
                "periods": [part.period for part in record.parts],
                "rows": record.rows,
                "ridge": record.solution.ridge,
                "saved": str(output),
            },
            as_json=json_,
            title="Combination, verified",
        )
