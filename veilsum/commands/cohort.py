"""`veilsum operator cohort`: enrolment for one run of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, notes, reported

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


def wanted_study(client: "Operator", study: str, federation: str | None) -> "tuple[StudyView, str]":
    """Find a study, and the federation that it is of. Without a file or option it is of the coordinator's only federation."""
    from veilsum.commands.admin import signed_in
    from veilsum.names import federation_id
    from veilsum.protocol.errors import Misuse
    from veilsum.protocol.messages import Study
    from veilsum.running import find_study

    path = Path(study)
    if path.is_file():
        signed = signed_in(path)
        if not isinstance(signed, Study):
            raise Misuse(f"{path} is a roster, expected a signed study")
        if federation is not None and federation_id(federation) != signed.federation.hex():
            raise Misuse(f"{path} is a study of another federation, {signed.federation.hex()}")
        return find_study(client, signed.federation.hex(), signed.hash.hex()), signed.federation.hex()
    name = _only(client) if federation is None else federation_id(federation)
    return find_study(client, name, study), name


def _only(client: "Operator") -> str:
    from veilsum.protocol.errors import Misuse

    found = client.coordinator().federations
    if len(found) != 1:
        known = (
            "no federation: publish its roster first"
            if not found
            else f"{len(found)} federations: pass --federation"
        )
        raise Misuse(f"the coordinator has {known}")
    return found[0]


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
