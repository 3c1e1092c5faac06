"""`veilsum round`: the operator opens a round and watches it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.commands import combining, schedules
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say

app = typer.Typer(help="The operator's side: one secure sum.", no_args_is_help=True)
RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")]


@app.command("open")
def open_(
    cohort: Annotated[str, typer.Argument(help="The cohort's id; with --mode helpers the federation's.")],
    extractor: Annotated[str, typer.Option(help="Digest of the extractor, from the roster's list.")],
    dim: Annotated[
        int | None, typer.Option(help="Features that the extractor gives.", min=1, show_default="the plan's")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Classes.", min=1, show_default="the plan's")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="A noisy round as `veilsum privacy plan --output` saved it: dim, classes, bias, ε, δ."
        ),
    ] = None,
    statistic: Annotated[
        str, typer.Option(help="What is asked: `veilsum round questions` lists what there is.")
    ] = "ffc",
    parameter: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the question; repeat.", show_default="its own")
    ] = None,
    rests_on: Annotated[
        str | None, typer.Option(help="The finished round that the question rests on.", show_default="none")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Differential privacy: ε of this round.", show_default="an exact sum"),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="δ, with --epsilon; well below 1 / records.", show_default="1e-05"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --epsilon: protect a record's content, not its presence.")
    ] = False,
    nonnegative: Annotated[
        bool,
        typer.Option(
            "--nonnegative",
            help="With --epsilon: no feature is below 0, as after a ReLU, so less noise does; members cut what is.",
        ),
    ] = False,
    member_records: Annotated[
        int | None,
        typer.Option(
            help="With --epsilon: protect a member as a whole; its sums are cut to what so many records alike come to.",
            min=1,
            show_default="a record is protected",
        ),
    ] = None,
    insist: Annotated[
        bool,
        typer.Option(
            "--insist",
            help="With --epsilon or --plan: also where noise is expected to leave little of a head.",
        ),
    ] = False,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    lattice: Annotated[
        str | None,
        typer.Option(help="How numbers become integers: sums or features.", show_default="the question's"),
    ] = None,
    ring_bits: Annotated[int, typer.Option(help="Bits of an element on the wire.", min=8, max=64)] = 48,
    records_max: Annotated[
        int | None, typer.Option(help="Most records in all.", min=1, show_default="the members' caps' sum")
    ] = None,
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="Who takes the masks off: members among themselves, or four mask helpers, which is another trust statement."
        ),
    ] = "members",
    records_cap: Annotated[
        int | None, typer.Option(help="With helpers: most records of one client.", min=1, show_default="none")
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(help="With helpers: clients that may collude.", min=0, show_default="a quarter of them"),
    ] = None,
    survivors_min: Annotated[
        int | None,
        typer.Option(help="With helpers: fewest clients in a sum.", min=3, show_default="colluders + 3"),
    ] = None,
    exception: Annotated[
        list[Path] | None,
        typer.Option(help="An exception that the admin signed (`veilsum round exception`); repeat."),
    ] = None,
    margin: Annotated[
        int | None,
        typer.Option(
            help="Where rare classes are withheld: how many of the members counted may be missing.",
            min=0,
            show_default="a sixth or all colluders, whichever is more, as far as a sum can spare them",
        ),
    ] = None,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="Count the classes' holders again: records have changed since."),
    ] = False,
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
            help="Have the coordinator open it then, UTC; tried once. `veilsum round schedules list` shows what became of it.",
            show_default="now",
        ),
    ] = None,
    upload_s: Annotated[float, typer.Option(help="Seconds to wait for uploads.")] = 3600.0,
    answer_s: Annotated[float, typer.Option(help="Seconds to wait for each later answer.")] = 300.0,
    grace_s: Annotated[float, typer.Option(help="Seconds to wait for more receipts than needed.")] = 15.0,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open the cohort's next round, or the next attempt of one that ended VOID; with helpers, the federation's.

    Where rare classes are withheld, the round that counts how many members hold each class comes first: it is opened and followed to its
    end, then the round itself. Interrupted, run it again: it goes on where it was.
    """
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from protocol.rest import (
            HelperRoundRequest,
            RoundRequest,
            WindowsModel,
        )
        from protocol.scheduling import ScheduleRequest
        from veilsum.asking import let_through, parsed
        from veilsum.names import (
            cohort_id,
            extractor_digest,
            federation_id,
            round_id,
        )
        from veilsum.opening import open_in_turn
        from veilsum.planned import SavedPlan
        from veilsum.remote import operator
        from veilsum.round_view import line, show

        windows = WindowsModel(
            upload_s=upload_s, check_s=answer_s, freeze_s=answer_s, reveal_s=answer_s, grace_s=grace_s
        )
        noise = _noise(
            epsilon, delta, replace=replace, nonnegative=nonnegative, member_records=member_records
        )
        saved = None if plan is None else SavedPlan.load(plan)
        own = {"dim": dim, "classes": classes, "bias": bias, "noise": noise}
        if saved is None and (dim is None or classes is None):
            raise Misuse("a round takes --dim and --classes, or --plan with both in it")
        if saved is not None and any(own.values()):
            raise Misuse(
                "--plan fixes dim, classes, bias and noise: leave --dim, --classes, --bias and --epsilon out"
            )
        values = {
            "statistic": statistic,
            "parameters": parsed(parameter or ()),
            "rests_on": None if rests_on is None else round_id(rests_on),
            **(own if saved is None else saved.request),
            "extractor": extractor_digest(extractor),
            "lattice": lattice,
            "ring_bits": ring_bits,
            "records_max": records_max,
            "ridges": ridge or (),
            "windows": windows,
            "margin": margin,
            "exceptions": [path.read_bytes().hex() for path in exception or ()],
        }
        let_through(values["noise"], insist=insist)
        numbers = {"records_cap": records_cap, "colluders": colluders, "survivors_min": survivors_min}
        if mode == "helpers":
            if at is not None or recount or margin is not None:
                raise Misuse("--at, --recount and --margin go with --mode members: leave them out")
            request = HelperRoundRequest.model_validate({**values, "mode": mode, **numbers})
            federation = federation_id(cohort)
            with operator(url, token, ca) as client:
                show(client.open_helper_round(federation, request), as_json=json_)
            return
        if mode != "members" or set(numbers.values()) != {None}:
            raise Misuse(
                "--records-cap, --colluders and --survivors-min go with --mode helpers; --mode is members or helpers"
            )
        if saved is not None:
            with operator(url, token, ca) as client:
                saved.check_cohort(client, cohort_id(cohort))
        if at is not None:
            if recount:
                raise Misuse("--at opens the round alone: leave --recount out, or count again beforehand")
            entry = ScheduleRequest(
                at_s=at.replace(tzinfo=UTC).timestamp(), round=RoundRequest.model_validate(values)
            )
            with operator(url, token, ca) as client:
                kept = client.schedule(cohort_id(cohort), entry)
            say(
                {"schedule": kept.schedule, "cohort": kept.cohort, "at": f"{at:%Y-%m-%d %H:%M:%S} UTC"},
                as_json=json_,
                title="Scheduled",
            )
            return
        with operator(url, token, ca) as client:
            view = open_in_turn(
                client,
                cohort_id(cohort),
                RoundRequest.model_validate(values),
                recount=recount,
                tell=lambda seen: note(f"counting, {line(seen)}"),
            )
        show(view, as_json=json_)
    if view.ended or view.state == "lost":
        raise typer.Exit(1)


def _noise(
    epsilon: float | None,
    delta: float | None,
    *,
    replace: bool,
    nonnegative: bool,
    member_records: int | None,
) -> dict[str, Any] | None:
    """The noise that a round asks for; None for an exact sum."""
    from protocol.errors import Misuse

    if epsilon is not None:
        return {
            "epsilon": epsilon,
            "neighbours": "replace" if replace else "add-remove",
            "nonnegative": nonnegative,
            "member_records": member_records,
            **({} if delta is None else {"delta": delta}),
        }
    if delta is not None or replace or nonnegative or member_records:
        raise Misuse(
            "--delta, --replace, --nonnegative and --member-records say what noise hides: pass --epsilon, or leave them out"
        )
    return None


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
