"""`veilsum round`: the operator opens a round and watches it."""

from typing import Annotated, Any

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, clock, note, reported, say

app = typer.Typer(help="The operator's side: one secure sum.", no_args_is_help=True)
RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")]


@app.command("open")
def open_(
    cohort: Annotated[str, typer.Argument(help="The cohort's id.")],
    dim: Annotated[int, typer.Option(help="Features that the extractor gives.", min=1)],
    classes: Annotated[int, typer.Option(help="Classes.", min=1)],
    extractor: Annotated[str, typer.Option(help="Digest of the extractor, from the roster's list.")],
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    lattice: Annotated[str, typer.Option(help="How numbers become integers: sums or features.")] = "sums",
    ring_bits: Annotated[int, typer.Option(help="Bits of an element on the wire.", min=8, max=64)] = 48,
    records_max: Annotated[
        int | None, typer.Option(help="Most records in all.", min=1, show_default="the members' caps' sum")
    ] = None,
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None,
    upload_s: Annotated[float, typer.Option(help="Seconds to wait for uploads.")] = 3600.0,
    answer_s: Annotated[float, typer.Option(help="Seconds to wait for each later answer.")] = 300.0,
    grace_s: Annotated[float, typer.Option(help="Seconds to wait for more receipts than needed.")] = 15.0,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open the cohort's next round, or the next attempt of one that ended VOID."""
    with reported(as_json=json_):
        from protocol.rest import RoundRequest, WindowsModel  # noqa: PLC0415 - `--help` stays quick
        from veilsum.names import cohort_id, extractor_digest  # noqa: PLC0415 - as above
        from veilsum.remote import operator  # noqa: PLC0415 - as above

        windows = WindowsModel(
            upload_s=upload_s, check_s=answer_s, freeze_s=answer_s, reveal_s=answer_s, grace_s=grace_s
        )
        request = RoundRequest.model_validate(
            {
                "dim": dim,
                "classes": classes,
                "extractor": extractor_digest(extractor),
                "bias": bias,
                "lattice": lattice,
                "ring_bits": ring_bits,
                "records_max": records_max,
                "ridges": ridge or (),
                "windows": windows,
            }
        )
        with operator(url, token, ca) as client:
            _show(client.open_round(cohort_id(cohort), request), as_json=json_)


@app.command()
def status(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Show a round as it stands."""
    with reported(as_json=json_):
        from veilsum import names  # noqa: PLC0415 - `--help` stays quick
        from veilsum.remote import operator  # noqa: PLC0415 - as above

        with operator(url, ca=ca) as client:
            _show(client.round(names.round_id(round_id)), as_json=json_)


@app.command()
def watch(round_id: RoundId, url: Url = DEFAULT_URL, ca: Ca = None, json_: AsJson = False) -> None:
    """Follow a round to its end; exit code 1 unless it ended with a result."""
    with reported(as_json=json_):
        from veilsum import names  # noqa: PLC0415 - `--help` stays quick
        from veilsum.remote import changes, operator  # noqa: PLC0415 - as above

        followed = names.round_id(round_id)
        with operator(url, ca=ca) as client:
            views = changes(lambda after: client.round(followed, after))
            while not (view := next(views)).ended:
                note(_line(view))
        _show(view, as_json=json_)
    if view.state != "done":
        raise typer.Exit(1)


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
        from veilsum import names  # noqa: PLC0415 - `--help` stays quick
        from veilsum.remote import operator  # noqa: PLC0415 - as above

        with operator(url, token, ca) as client:
            _show(client.cancel(names.round_id(round_id), reason), as_json=json_)


def _line(view: Any) -> str:
    waiting = f", waiting for {', '.join(view.waiting_for)}" if view.waiting_for else ""
    until = f" until {clock(view.deadline_s)}" if view.deadline_s is not None else ""
    return f"{view.state}: {len(view.uploaded)} of {len(view.members)} uploaded{waiting}{until}"


def _show(view: Any, *, as_json: bool) -> None:
    if as_json:
        say(view.model_dump(mode="json"), as_json=True)
        return
    values: dict[str, Any] = {
        "round": view.round,
        "state": view.state,
        "place": f"round {view.sequence}, attempt {view.attempt}",
        "uploaded": f"{len(view.uploaded)} of {len(view.members)}, {view.survivors_min} needed",
    }
    if view.waiting_for:
        values["waiting_for"] = f"{', '.join(view.waiting_for)} until {clock(view.deadline_s)}"
    if view.survivors:
        values["survivors"] = view.survivors
    if view.phase_seconds:
        values["seconds"] = view.phase_seconds
    if view.fault is not None:
        values["why"] = f"{view.fault.cause}: {view.fault.detail}"
    say(values, as_json=False, title="Round")
