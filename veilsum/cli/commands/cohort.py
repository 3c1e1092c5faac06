"""`veilsum operator cohort`: enrolment for one run of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.cli import names
from veilsum.cli.options import Connect, at_coordinator
from veilsum.protocol.errors import Misuse

if TYPE_CHECKING:
    from client_sdk.operator import Operator
    from veilsum.protocol.rest import StudyView

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="The study's name or hash, or its signed .bin file.")
]
Federation = Annotated[
    str | None,
    typer.Option(
        envvar="VEILSUM_FEDERATION",
        help="The federation's id.",
        show_default="the coordinator's only one, or the signed file's",
    ),
]
Period = Annotated[
    str | None, typer.Option(help="Which records are summed.", show_default="this month, e.g. 2026-11")
]
CohortId = Annotated[str, typer.Argument(metavar="COHORT", help="The cohort's id.")]


def wanted_study(client: "Operator", study: str, federation: str | None) -> "tuple[StudyView, str]":
    """Find a study and its federation, which defaults to the coordinator's only one unless `study` is a file."""
    from veilsum.cli.admin import read_signed
    from veilsum.cli.running import find_study
    from veilsum.protocol.messages import Study

    path = Path(study)
    if path.is_file():
        signed = read_signed(path)
        if not isinstance(signed, Study):
            raise Misuse(f"{path} is a roster, expected a signed study")
        if federation is not None and names.federation_id(federation) != signed.federation.hex():
            raise Misuse(f"{path} is a study of another federation, {signed.federation.hex()}")
        return find_study(client, signed.federation.hex(), signed.hash.hex()), signed.federation.hex()
    name = _only_federation(client) if federation is None else names.federation_id(federation)
    return find_study(client, name, study), name


def _only_federation(client: "Operator") -> str:
    found = client.coordinator().federations
    if not found:
        raise Misuse("the coordinator has no federation: publish its roster first")
    if len(found) > 1:
        raise Misuse(f"the coordinator has {len(found)} federations: pass --federation")
    return found[0]


app = typer.Typer(
    help="Open and watch enrolment, step by step; `veilsum operator run` does all of it.",
    no_args_is_help=True,
)


@app.command("open")
@at_coordinator(token=True)
def open_(
    connect: Connect,
    study: StudyName,
    federation: Federation = None,
    period: Period = None,
    repeats: Annotated[
        str | None,
        typer.Option(
            help="Context of a certified attempt of the period: sum its records again.",
            show_default="fresh records",
        ),
    ] = None,
) -> None:
    """Open a cohort for one run of a study. Members that approved the study enrol by themselves."""
    from veilsum.cli.round_view import show_view
    from veilsum.cli.running import this_month

    with connect() as client:
        found, of = wanted_study(client, study, federation)
        context = None if repeats is None else names.digest(repeats)
        show_view(client.open_cohort(of, found.study, period or this_month(), context))


@app.command()
@at_coordinator(token=False)
def status(connect: Connect, cohort: CohortId) -> None:
    """Show the enrolled members, and the sizes that follow from their number."""
    from veilsum.cli.round_view import show_view

    name = names.cohort_id(cohort)
    with connect() as client:
        show_view(client.cohort(name))


@app.command()
@at_coordinator(token=False)
def watch(connect: Connect, cohort: CohortId) -> None:
    """Follow enrolment and pairing to their end. Exits with 1 unless the cohort was formed."""
    from veilsum.cli.remote import watch_changes
    from veilsum.cli.round_view import progress_printer, show_view

    name = names.cohort_id(cohort)
    with connect() as client:
        tell, views = progress_printer(), watch_changes(lambda after: client.cohort(name, after))
        while (view := next(views)).forming:
            tell(view)
    show_view(view)
    if view.state != "formed":
        raise typer.Exit(1)


@app.command()
@at_coordinator(token=True)
def close(connect: Connect, cohort: CohortId) -> None:
    """End enrolment now, with the members enrolled so far."""
    from veilsum.cli.round_view import show_view

    name = names.cohort_id(cohort)
    with connect() as client:
        show_view(client.close_cohort(name))
