"""`veilsum calibrate`: a head of any kind from features in files, on this machine or through rounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.commands.options import MemberLimits, Normalise, gathered
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, note, reported, say

if TYPE_CHECKING:
    from veilsum.calibrating.order import Order

_ROUND = "Through a round"


@gathered
def calibrate(
    features: Annotated[list[Path], typer.Argument(help="Features and labels, one file or several.")],
    head: Annotated[
        str | None,
        typer.Option(
            help="Which head: ffc, rff, ccvr, as `veilsum operator round questions` lists them; lda and ncm, which follow from ffc's sums; of noisy rounds "
            "also refine, and centred, which takes the mean off first.",
            show_default="ffc; of a round what it asks",
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the head's question; repeat.", show_default="its own"),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Judge the head on these: a share of the records, which are then not fitted, or a file of others.",
            show_default="none",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Where a page with figures goes: the choice of λ, reliability, classes, spectrum."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say what would go up and who would learn what, send nothing, and stop."
        ),
    ] = False,
    classes: Annotated[
        int | None, typer.Option(help="Classes.", min=1, show_default="the highest label + 1")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, where the features are one .npy.")] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    normalise: Normalise = False,
    unit_columns: Annotated[
        bool,
        typer.Option(
            "--unit-columns",
            help="Scale each class's weights, its constant among them, to length 1: those of many records are longer.",
        ),
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Shares of the classes where the head is used: uniform, or a text file of a number for each. Of a head from files; "
            "all but lda and ccvr take --held-out with it.",
            show_default="as in the records fitted",
        ),
    ] = None,
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the head goes.")] = Path("head.safetensors"),
    folder: Annotated[
        Path | None, typer.Option(help="Your identity's folder.", rich_help_panel=_ROUND)
    ] = None,
    cohort: Annotated[
        str | None,
        typer.Option(
            help="The cohort to enrol in.",
            show_default="the one it stopped in, or the federation's newest",
            rich_help_panel=_ROUND,
        ),
    ] = None,
    admin_key: Annotated[
        str | None,
        typer.Option(
            envvar="VEILSUM_ADMIN_KEY",
            help="The admin's public key; get it from the admin.",
            show_default="the one pinned",
            rich_help_panel=_ROUND,
        ),
    ] = None,
    lineage: Annotated[
        str | None,
        typer.Option(
            help="Your name for this data set; the same records, the same name.",
            show_default="main",
            rich_help_panel=_ROUND,
        ),
    ] = None,
    personal: Annotated[
        bool,
        typer.Option(
            "--personal",
            help="Mix your own sums with those of a round that publishes them; records held out say how much.",
            rich_help_panel=_ROUND,
        ),
    ] = False,
    round_: Annotated[
        str | None,
        typer.Option("--round", help="A round's id.", show_default="the next", rich_help_panel=_ROUND),
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
    *,
    limits: MemberLimits,
) -> None:
    """Fit a head in closed form: on this machine, or with others through rounds.

    With --folder it goes through a round, whose terms fix classes, bias, λ and parameters. With --head it waits for rounds that lead
    there, which the operator opens.
    """
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from veilsum.asking import parsed
        from veilsum.calibrating.order import Order, held_out_from

        order = Order(
            head=head,
            parameters=parsed(parameter or ()),
            bias=bias,
            ridges=tuple(ridge or ()),
            normalise=normalise,
            output=output,
            report=report,
            personal=personal,
            unit_columns=unit_columns,
            prior=prior,
            **held_out_from(held_out),
        )
        if folder is None:
            given = {"--cohort": cohort, "--lineage": lineage, "--round": round_, "--personal": personal}
            named = [name for name, value in given.items() if value]
            named += [f"--{name.replace('_', '-')}" for name in limits.given]
            if named:
                raise Misuse(f"only a round takes {', '.join(named)}: pass --folder with your identity too")
            _locally(order, features, labels, classes, explain=explain, as_json=json_)
            return
        fixed = {"--classes": classes, "--bias": bias, "--ridge": ridge, "--parameter": parameter}
        _refuse("the round's terms fix", [name for name, value in fixed.items() if value])
        _refuse("a round's record says no counts of classes for", ["--prior"] if prior else [])
        from veilsum.calibrating import shared
        from veilsum.contribute import Errand, cohort_of
        from veilsum.pinning import pinned

        if len(features) != 1:
            raise Misuse("a member contributes one file of features: join them first")
        policy = limits.policy(pinned(folder, admin_key))
        errand = Errand(
            folder=folder,
            url=url,
            policy=policy,
            cohort=cohort or cohort_of(folder, url, policy, round_, ca),
            features=features[0],
            labels=labels,
            lineage=lineage or "main",
            normalise=normalise,
            round_id=round_,
            ca=ca,
        )

        if not explain:
            say(shared.through_rounds(errand, order), as_json=json_, title="Head")
            return
        if (rounds := shared.explained(errand, order)) is None:
            note("No round that leads there is open; this is what one would ask of these records.")
            _locally(order, features, labels, classes, explain=True, as_json=json_)
        else:
            _explain(rounds, as_json=json_)


def _locally(
    order: "Order",
    features: list[Path],
    labels: Path | None,
    classes: int | None,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    from veilsum.calibrating.explained import of_questions
    from veilsum.calibrating.local import Local

    local = Local(order, features, labels=labels, classes=classes)
    if explain:
        _explain(of_questions(local.questions()), as_json=as_json)
    else:
        say(local.run(), as_json=as_json, title="Head")


def _explain(rounds: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        say({"rounds": rounds}, as_json=True)
        return
    for number, each in enumerate(rounds, 1):
        say(each, as_json=False, title=f"Round {number} of {len(rounds)}")


def _refuse(why: str, given: list[str]) -> None:
    from protocol.errors import Misuse

    if given:
        raise Misuse(f"{why} {', '.join(given)}: leave that out")
