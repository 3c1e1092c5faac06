"""`veilsum operator round`: open and watch a single step of a run."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.cli import names
from veilsum.cli.commands.cohort import CohortId
from veilsum.cli.console import print_values
from veilsum.cli.options import Connect, at_coordinator
from veilsum.protocol.errors import Misuse

app = typer.Typer(
    help="Open and watch secure sums, step by step; `veilsum operator run` does all of it.",
    no_args_is_help=True,
)
RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")]


@app.command("open")
@at_coordinator(token=True)
def open_(
    connect: Connect,
    cohort: CohortId,
    lifetime_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds until the latest end, when decryptors erase their keys.", show_default="an hour"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Open nothing: show what would be opened, and what it costs.")
    ] = False,
) -> None:
    """Open the next step of a cohort's run, or the next attempt at it. The study says what it sums."""
    from veilsum.cli.round_view import show_view

    name = names.cohort_id(cohort)
    with connect() as client:
        deed = client.preflight if dry_run else client.open_round
        show_view(deed(name, lifetime_s=lifetime_s))


@app.command()
@at_coordinator(token=False)
def status(connect: Connect, round_id: RoundId) -> None:
    """Show a round's current state."""
    from veilsum.cli.round_view import show_view

    name = names.round_id(round_id)
    with connect() as client:
        show_view(client.round(name))


@app.command()
@at_coordinator(token=False)
def watch(connect: Connect, round_id: RoundId) -> None:
    """Follow a round to its end, or until it waits for the admin. Exits with 1 unless it ended with a result."""
    from veilsum.cli.remote import watch_changes
    from veilsum.cli.round_view import progress_printer, show_view

    name = names.round_id(round_id)
    with connect() as client:
        tell, views = progress_printer(), watch_changes(lambda after: client.round(name, after))
        while not (view := next(views)).ended and view.state != "erasing":
            tell(view)
    show_view(view)
    if view.state != "done":
        raise typer.Exit(1)


@app.command()
@at_coordinator(token=False)
def result(connect: Connect, round_id: RoundId) -> None:
    """Show the signed record of a finished round. Members verify it against their own evidence."""
    from veilsum.cli.round_view import show_result

    name = names.round_id(round_id)
    with connect() as client:
        show_result(client, name)


@app.command()
@at_coordinator(token=True)
def cancel(
    connect: Connect, round_id: RoundId, reason: Annotated[str, typer.Option(help="Why; shown to everyone.")]
) -> None:
    """Cancel a round: its decryptors are asked to sign VOID."""
    from veilsum.cli.round_view import show_view

    name = names.round_id(round_id)
    with connect() as client:
        show_view(client.cancel(name, reason))


@app.command()
@at_coordinator(token=True)
def extend(
    connect: Connect,
    round_id: RoundId,
    by: Annotated[float, typer.Option(help="Seconds to add to the current deadline.", min=1)],
) -> None:
    """Extend the deadline of a round's current phase, at most to the latest end."""
    from veilsum.cli.round_view import show_view

    name = names.round_id(round_id)
    with connect() as client:
        view = client.round(name)
        if view.deadline_s is None:
            raise Misuse(f"round {view.round} is {view.state} and has no deadline")
        show_view(client.extend(view.round, view.deadline_s + by))


@app.command()
@at_coordinator(token=False)
def transcript(
    connect: Connect,
    round_id: RoundId,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the transcript goes, a JSON file.")],
) -> None:
    """Fetch the signed transcript of a round that has ended; `veilsum verify` replays it."""
    name = names.round_id(round_id)
    with connect() as client:
        content = client.transcript(name)
    output.write_bytes(content)
    saved = {
        "round": name,
        "saved": str(output),
        "bytes": len(content),
        "next": f"veilsum verify {output} --admin-key ADMIN_KEY",
    }
    print_values(saved, "Transcript, not yet verified")


@app.command()
@at_coordinator(token=True)
def combine(
    connect: Connect,
    rounds: Annotated[
        list[str], typer.Argument(metavar="ROUND...", help="Final rounds of two or more periods.")
    ],
) -> None:
    """Add up the exact sums of several periods of one question, and solve for one head."""
    ids = list(map(names.round_id, rounds))
    with connect() as client:
        record = client.combine(client.round(ids[0]).federation, ids)
    values = {
        "combination": record.combination,
        "study": record.name,
        "periods": [part.period for part in record.parts],
        "rounds": [part.round for part in record.parts],
        "rows": record.rows,
        "ridge": record.solution.ridge,
    }
    print_values(values, "Combination")


@app.command("combined")
@at_coordinator(token=False)
def fetch_combination(
    connect: Connect,
    combination: Annotated[str, typer.Argument(help="The combination's id.")],
    folder: Annotated[Path, typer.Option(help="A member's identity that took part in each period.")],
    output: Annotated[Path, typer.Option(help="Where the head goes, a safetensors file.")],
) -> None:
    """As a member, fetch a combination and verify it against the evidence of each of its rounds."""
    from client_sdk import Identity, Result
    from client_sdk.combined import Combined
    from client_sdk.store import Store
    from veilsum.cli.membership import find_admin_key

    key = find_admin_key(folder, None)
    identity = Identity.load(folder)
    store = Store(identity.folder)
    with connect(member=identity) as client:
        record, weights = client.combination(names.round_id(combination))
    found = Combined(record, weights)
    found.verify([Result.load(store.result_folder(part.round)) for part in record.parts], key)
    output.write_bytes(weights)
    values = {
        "combination": record.combination,
        "periods": [part.period for part in record.parts],
        "rows": record.rows,
        "ridge": record.solution.ridge,
        "saved": str(output),
    }
    print_values(values, "Combination, verified")
