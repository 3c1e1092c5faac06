"""`veilsum operator cohort`: the operator opens enrolment."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, clock, reported, say

if TYPE_CHECKING:
    from protocol.rest import QuorumView

app = typer.Typer(
    help="For the operator: open a cohort, in which members enrol with fresh keys for some rounds.",
    no_args_is_help=True,
)
CohortId = Annotated[str, typer.Argument(metavar="COHORT", help="The cohort's id.")]


@app.command("open")
def open_(
    federation: Annotated[str, typer.Argument(help="The federation's id: its admin's public key.")],
    records_cap: Annotated[
        int, typer.Option(help="Most records that a member may contribute.", min=1)
    ] = 65_535,
    colluders: Annotated[
        int | None,
        typer.Option(
            help="How many members may collude with the coordinator.", min=0, show_default="a quarter"
        ),
    ] = None,
    honest_min: Annotated[
        int, typer.Option(help="Fewest honest members that a sum hides each of them among.", min=3, max=1000)
    ] = 3,
    loss: Annotated[
        int,
        typer.Option(
            help="Members in a thousand who may vanish, by which graph and committee of more than 200 are sized; "
            "members refuse more than 250 unless their policy allows it.",
            min=0,
            max=374,
        ),
    ] = 100,
    enrol_s: Annotated[
        float, typer.Option(help="Seconds until enrolment closes with those who came.")
    ] = 86_400.0,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open a cohort; members enrol with `veilsum member join`."""
    with reported(as_json=json_):
        from protocol.rest import CohortRequest
        from veilsum.names import federation_id
        from veilsum.remote import operator

        request = CohortRequest(
            records_cap=records_cap,
            colluders=colluders,
            honest_min=honest_min,
            loss=loss,
            enrol_s=enrol_s,
        )
        with operator(url, token, ca) as client:
            _show(client.open_cohort(federation_id(federation), request), as_json=json_)


@app.command()
def status(cohort: CohortId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show who has enrolled, and what follows from how many there are."""
    with reported(as_json=json_):
        from veilsum.names import cohort_id
        from veilsum.remote import operator

        with operator(url, ca=ca) as client:
            _show(client.cohort(cohort_id(cohort)), as_json=json_)


@app.command()
def watch(cohort: CohortId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Follow enrolment to its end; exit code 1 unless the cohort was formed."""
    with reported(as_json=json_):
        from veilsum.following import formed
        from veilsum.names import cohort_id
        from veilsum.remote import operator

        with operator(url, ca=ca) as client:
            view = formed(client, cohort_id(cohort))
        _show(view, as_json=json_)
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

        with operator(url, token, ca) as client:
            _show(client.close_cohort(cohort_id(cohort)), as_json=json_)


def graph(quorum: "QuorumView") -> str:
    """With whom each member shares a mask, in words."""
    if quorum.neighbours == quorum.members - 1:
        return f"all {quorum.neighbours} others"
    return (
        f"{quorum.neighbours} others, and of any {quorum.neighbours // 2} in a row "
        f"{quorum.window_dropped_max} may be lost"
    )


def _show(view: Any, *, as_json: bool) -> None:
    if as_json:
        say(view.model_dump(mode="json"), as_json=True)
        return
    values: dict[str, Any] = {
        "cohort": view.cohort,
        "state": view.state,
        "enrolled": f"{len(view.cards)} of {len(view.members)}",
        "missing": sorted(set(view.members) - set(view.cards)),
    }
    if view.deadline_s is not None:
        values["until"] = clock(view.deadline_s)
    if view.quorum is not None:
        values |= {
            "survivors_needed": view.quorum.survivors_min,
            "members_may_miss": view.quorum.members_may_miss,
            "masks_shared_with": graph(view.quorum),
            "colluders_withstood": view.quorum.colluders,
            "colluding_decryptors_withstood": f"{view.quorum.decryptor_colluders} of {view.quorum.decryptors}",
        }
        if view.quorum.caution:
            values["caution"] = view.quorum.caution
    if view.fault is not None:
        values["failed"] = view.fault.detail
    if view.rounds:
        values["rounds"] = view.rounds
    say(values, as_json=False, title="Cohort")
