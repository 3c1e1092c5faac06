"""`veilsum calibrate`: fit a head to features from files, on this machine or through a round."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, reported, say


def calibrate(
    features: Annotated[list[Path], typer.Argument(help="Features and labels, one file or several.")],
    classes: Annotated[
        int | None, typer.Option(help="Classes [default: the highest label + 1].", min=1)
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, where the features are one .npy.")] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")
    ] = False,
    ridge: Annotated[list[float] | None, typer.Option(help="λ; repeat for a grid [default: GCV].")] = None,
    test: Annotated[Path | None, typer.Option(help="Features and labels to measure the accuracy on.")] = None,
    output: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("head.safetensors"),
    folder: Annotated[Path | None, typer.Option(help="Through a round: your identity's folder.")] = None,
    cohort: Annotated[str | None, typer.Option(help="Through a round: its cohort.")] = None,
    admin_key: Annotated[
        str | None, typer.Option(envvar="VEILSUM_ADMIN_KEY", help="Through a round: the admin's public key.")
    ] = None,
    lineage: Annotated[str, typer.Option(help="Through a round: your name for this data set.")] = "default",
    url: Annotated[
        str, typer.Option(envvar="VEILSUM_URL", help="Through a round: the coordinator's address.")
    ] = "http://127.0.0.1:8000",
    json_: AsJson = False,
) -> None:
    """Fit a head in closed form: locally, or with --folder, --cohort and --admin-key together with others."""
    with reported(as_json=json_):
        from veilsum import heads  # noqa: PLC0415 - `--help` stays quick

        if cohort is not None or folder is not None:
            values = heads.through_round(
                features,
                labels=labels,
                normalise=normalise,
                folder=folder,
                cohort=cohort,
                admin_key=admin_key,
                lineage=lineage,
                url=url,
                output=output,
                test=test,
            )
        else:
            values = heads.local(
                features,
                labels=labels,
                classes=classes,
                bias=bias,
                normalise=normalise,
                ridges=ridge,
                output=output,
                test=test,
            )
        say(values, as_json=json_, title="Head")
