"""`veilsum privacy`: what differential privacy would cost, before a round is opened."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.console import AsJson, reported, say

app = typer.Typer(help="Differential privacy: what it would promise and cost.", no_args_is_help=True)


@app.command("plan")
def plan_(
    records: Annotated[int, typer.Option(help="Records of all members together.", min=1)],
    dim: Annotated[int, typer.Option(help="Features per record.", min=1)],
    classes: Annotated[int, typer.Option(help="Classes.", min=1)],
    members: Annotated[int, typer.Option(help="Members of the cohort.", min=3)],
    epsilon: Annotated[float, typer.Option(help="ε that one round may cost.")],
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
    output: Annotated[
        Path | None, typer.Option(help="Save it for `veilsum round open --plan`.", show_default="nowhere")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Say what noise a round would need, what it would cost in bytes and accuracy, and what would help."""
    with reported(as_json=json_):
        from calibration.privacy import Neighbours, plan  # noqa: PLC0415 - `--help` stays quick
        from protocol.parameters import Quorum  # noqa: PLC0415 - as above

        quorum = Quorum.derive(members, members, colluders=colluders)
        made = plan(
            records,
            dim,
            classes,
            members=members,
            survivors_min=quorum.survivors_min,
            colluders=quorum.colluders,
            epsilon=epsilon,
            delta=delta,
            bias=bias,
            neighbours=Neighbours.REPLACE if replace else Neighbours.ADD_REMOVE,
            nonnegative=nonnegative,
        )
        median, worst = made.expected_loss
        mechanism = made.mechanism
        values: dict[str, Any] = {
            "verdict": made.verdict.value,
            "what_would_help": list(made.advice()),
            "expected_points_lost": median,
            "worst_points_measured": worst,
            "epsilon": mechanism.epsilon(delta),
            "epsilon_by_published_bounds": mechanism.published_epsilon(delta),
            "delta": delta,
            "mu": mechanism.mu_round,
            "sigma": mechanism.sigma,
            "sigma_when_all_are_summed": made.deviation,
            "survivors_min": quorum.survivors_min,
            "colluders": quorum.colluders,
            "lattice_bits": mechanism.lattice.bits,
            "ring_bits": made.ring_bits,
            "upload_bytes": made.upload_bytes,
        }
        if output is not None:
            from protocol.rest import NoiseRequest  # noqa: PLC0415 - as above
            from veilsum.planned import SavedPlan  # noqa: PLC0415 - as above

            SavedPlan(
                records=records,
                dim=dim,
                classes=classes,
                bias=bias,
                members=members,
                survivors_min=quorum.survivors_min,
                colluders=quorum.colluders,
                noise=NoiseRequest(
                    epsilon=epsilon,
                    delta=delta,
                    neighbours="replace" if replace else "add-remove",
                    nonnegative=nonnegative,
                ),
            ).save(output)
            values["saved"] = str(output)
        say(values, as_json=json_, title="A noisy round")
