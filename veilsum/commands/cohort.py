"""`veilsum operator cohort`: enrolment for one run of a study."""

from typing import Annotated

import typer

from veilsum.commands.wanted import Federation, StudyName, wanted_study
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, notes, reported

app = typer.Typer(
    help="Open and watch enrolment, step by step; `veilsum operator run` does all of it.",
    no_args_is_help=True,
)
CohortId = Annotated[str, typer.Argument(metavar="COHORT", help="The cohort's id.")]


@app.command("open")
def open_(
    study: StudyName,
    federation: Federation = None,
    period: Annotated[
        str | None, typer.Option(help="Which records are summed.", show_default="this month")
    ] = None,
    repeats: Annotated[
        str | None,
        typer.Option(
            help="Context of a certified attempt of the period: sum its records again.",
            show_default="fresh records",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open a cohort for one run of a study. Members that approved the study enrol by themselves."""
    with reported(as_json=json_):
        from veilsum import names
        from veilsum.remote import operator
        from veilsum.round_view import show_cohort
        from veilsum.running import this_month

        with operator(url, token, ca) as client:
            found, of = wanted_study(client, study, federation)
            view = client.open_cohort(
                of, found.study, period or this_month(), None if repeats is None else names.digest(repeats)
            )
        show_cohort(view, as_json=json_)


@app.command()
def status(cohort: CohortId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show the enrolled members, and the sizes that follow from their number."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import operator
        from veilsum.round_view import show_cohort

        with operator(url, ca=ca) as client:
            show_cohort(client.cohort(cohort_id(cohort)), as_json=json_)


@app.command()
def watch(cohort: CohortId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Follow enrolment to its end. Exits with 1 unless the cohort was formed."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import changes, operator
        from veilsum.round_view import line, show_cohort

        name = cohort_id(cohort)
        with operator(url, ca=ca) as client:
            tell, views = notes(), changes(lambda after: client.cohort(name, after))
            while (view := next(views)).state == "enrolling":
                tell(line(view))
        show_cohort(view, as_json=json_)
    if view.state != "formed":
        raise typer.Exit(1)


@app.command()
def close(
    cohort: CohortId, url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None, json_: AsJson = False
) -> None:
    """End enrolment now, with the members that came."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import operator
        from veilsum.round_view import show_cohort

        with operator(url, token, ca) as client:
            show_cohort(client.close_cohort(cohort_id(cohort)), as_json=json_)
