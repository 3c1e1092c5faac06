"""`veilsum privacy`: what differential privacy costs, before a study is signed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.console import AsJson, reported, say

if TYPE_CHECKING:
    from veilsum.calibration.privacy import CohortSizes


def privacy(
    records: Annotated[int, typer.Option(help="Rows of all members together.", min=1)],
    dim: Annotated[int, typer.Option(help="Features per record.", min=1)],
    classes: Annotated[int, typer.Option(help="Classes.", min=2)],
    members: Annotated[int, typer.Option(help="Members of a run.", min=3)],
    epsilon: Annotated[float, typer.Option(help="ε of the whole study.")],
    delta: Annotated[float, typer.Option(help="δ; well below 1 / records.")] = 1e-7,
    recipe: Annotated[
        str, typer.Option(help="sum, mean+sum, mean+sum+refinement or mean+gradients.")
    ] = "mean+sum",
    rows: Annotated[
        int, typer.Option(help="Rows of a unit: `rows_per_id`, or `most` to protect a member.", min=1)
    ] = 1,
    colluders: Annotated[
        int | None, typer.Option(help="Members that may collude.", min=0, show_default="a quarter")
    ] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    json_: AsJson = False,
) -> None:
    """Estimate what a noisy study of FFC costs: noise, bytes and accuracy, and what would help.

    The accuracy is a rule of thumb from measurements, not a bound.
    """
    with reported(as_json=json_):
        from veilsum.protocol.errors import Misuse
        from veilsum.protocol.quorum import HONEST_MIN
        from veilsum.protocol.sizing import Assumptions, size
        from veilsum.protocol.study import RECIPES

        if recipe not in RECIPES:
            raise Misuse(f"unknown recipe {recipe!r}: expected {', '.join(RECIPES)}")
        if not epsilon > 0 or not 0 < delta < 1:
            raise Misuse(f"ε = {epsilon:g} and δ = {delta:g}: expected ε above 0, and δ between 0 and 1")
        if delta * records > 1:
            raise Misuse(
                f"δ = {delta:g} is above 1/{records}: a mechanism that publishes one record at random would pass. "
                f"Expected at most {1 / records:.1g}; a tenth of that is usual"
            )
        against = members // 4 if colluders is None else colluders
        quorum = size(
            members, None, Assumptions(), colluders=against, honest_min=HONEST_MIN, roster=members
        ).quorum
        cohort: CohortSizes = {
            "members": members,
            "survivors_min": quorum.survivors_min,
            "colluders": against,
        }
        values = _planned(recipe, records, dim, classes, epsilon, delta, rows, cohort, bias=bias)
        say(values, as_json=json_, title="A noisy study")


def _planned(
    recipe: str,
    records: int,
    dim: int,
    classes: int,
    epsilon: float,
    delta: float,
    rows: int,
    cohort: "CohortSizes",
    *,
    bias: bool,
) -> dict[str, Any]:
    import math

    from veilsum.calibration.privacy import (
        MeanPlan,
        Mechanism,
        NoisyRound,
        gdp_epsilon,
        gdp_mu,
        gradient_release,
        mean_release,
        plan,
    )
    from veilsum.protocol.study import MEAN_STEP, RECIPES, SUM_STEP

    mu = gdp_mu(epsilon, delta)
    rounds = list[NoisyRound]()
    values: dict[str, Any] = {"recipe": recipe, "epsilon": epsilon, "delta": delta, "mu": mu}
    for step, share in RECIPES[recipe]:
        part = gdp_epsilon(mu * math.sqrt(share), delta)
        if step == MEAN_STEP:
            mechanism = Mechanism(mean_release(dim), rows, gdp_mu(part, delta), **cohort)
            mean = MeanPlan(mechanism, records, delta)
            values["expected_error_of_the_mean"] = mean.error
            rounds.append(mean)
        elif step == SUM_STEP:
            sums = plan(
                records, dim, classes, epsilon=part, delta=delta, bias=bias, rows_per_unit=rows, **cohort
            )
            median, worst = sums.expected_loss
            values |= {
                "verdict_on_the_sum": sums.outlook.value,
                "expected_points_lost": median,
                "worst_points_measured": worst,
                "sigma": sums.mechanism.sigma,
                "sigma_when_all_are_summed": sums.deviation,
                "what_would_help": list(sums.advice()),
            }
            rounds.append(sums)
        else:
            release = gradient_release(dim + bias, classes)
            rounds.append(
                NoisyRound(Mechanism(release, rows, mu * math.sqrt(share), **cohort), records, delta)
            )
    refinements = sum(step.startswith("refinement") for step, _ in RECIPES[recipe])
    if refinements:
        whole = plan(
            records, dim, classes, epsilon=epsilon, delta=delta, bias=bias, rows_per_unit=rows, **cohort
        )
        if (gain := whole.refinement_gain(refinements)) is not None:
            values["points_gained_by_refinement"], values["points_gained_at_worst"] = gain
    return values | {
        "steps": {
            step: f"ε = {each.epsilon:.3g}" for (step, _), each in zip(RECIPES[recipe], rounds, strict=True)
        },
        "ring_bits": max(each.ring_bits for each in rounds),
        "upload_bytes": sum(each.upload_bytes for each in rounds),
        "needed_for_a_sum": cohort["survivors_min"],
        "may_collude": cohort["colluders"],
    }
