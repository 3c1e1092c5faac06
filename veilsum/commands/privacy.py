"""`veilsum privacy`: what differential privacy would cost, before a round is opened."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, reported, say

app = typer.Typer(
    help="For anyone: plan differential privacy, what it promises and what it costs.", no_args_is_help=True
)


@app.command("plan")
def plan_(
    records: Annotated[int, typer.Option(help="Records of all members together.", min=1)],
    dim: Annotated[int, typer.Option(help="Features per record.", min=1)],
    classes: Annotated[int, typer.Option(help="Classes.", min=1)],
    members: Annotated[int, typer.Option(help="Members of the cohort.", min=3)],
    epsilon: Annotated[
        float, typer.Option(help="ε that the round may cost; of refine, all rounds that lead to its head.")
    ],
    statistic: Annotated[
        str,
        typer.Option(
            help="What is asked: any question (`veilsum operator round questions`); refine is one round of ffc and rounds of gradients after it."
        ),
    ] = "ffc",
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the question; repeat.", show_default="its own"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Of gradients, with --statistic refine.", min=1, max=100)] = 4,
    delta: Annotated[float, typer.Option(help="δ; well below 1 / records.")] = 1e-5,
    colluders: Annotated[
        int | None,
        typer.Option(
            help="How many members may collude with the coordinator.", min=0, show_default="a quarter"
        ),
    ] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Protect a record's content, where it is known to be there.")
    ] = False,
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="No feature is below 0, as after a ReLU.")
    ] = False,
    member_records: Annotated[
        int | None,
        typer.Option(
            help="Protect a member as a whole: its sums are cut to what so many records alike come to.",
            min=1,
            show_default="a record is protected",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Save it for `veilsum operator round open --plan`.", show_default="nowhere"),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Say what noise a round would need, what it would cost in bytes and accuracy, and what would help."""
    with reported(as_json=json_):
        from calibration.privacy import Neighbours
        from protocol.errors import Misuse
        from protocol.parameters import Quorum
        from veilsum.asking import parsed
        from veilsum.planning import planned

        parameters = parsed(parameter or ())
        if output is not None and statistic == "refine":
            raise Misuse("--output saves one round, and refine takes several: open them by what this prints")
        if parameters and statistic in {"mean", "refine"}:
            raise Misuse(
                f"no parameter changes what a {statistic} round's noise costs: leave --parameter out"
            )
        quorum = Quorum.derive(members, members, colluders=colluders)
        values = planned(
            statistic,
            records,
            dim,
            classes,
            rounds,
            parameters,
            members=members,
            survivors_min=quorum.survivors_min,
            colluders=quorum.colluders,
            epsilon=epsilon,
            delta=delta,
            bias=bias,
            neighbours=Neighbours.REPLACE if replace else Neighbours.ADD_REMOVE,
            nonnegative=nonnegative,
            member_records=member_records,
        )
        if output is not None:
            from protocol.rest import NoiseRequest
            from veilsum.planned import SavedPlan

            SavedPlan(
                records=records,
                dim=dim,
                classes=classes,
                bias=bias or statistic == "ffc-bias",
                statistic=statistic,
                parameters=parameters,
                members=members,
                survivors_min=quorum.survivors_min,
                colluders=quorum.colluders,
                noise=NoiseRequest(
                    epsilon=epsilon,
                    delta=delta,
                    neighbours="replace" if replace else "add-remove",
                    nonnegative=nonnegative,
                    member_records=member_records,
                ),
            ).save(output)
            values["saved"] = str(output)
        say(values, as_json=json_, title="A noisy round")
