"""`veilsum calibrate`: fit a head to features from files, on this machine or through a round."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say

if TYPE_CHECKING:
    from veilsum.contribute import Errand

_ROUND = "Through a round"


def calibrate(
    features: Annotated[list[Path], typer.Argument(help="Features and labels, one file or several.")],
    classes: Annotated[
        int | None, typer.Option(help="Classes.", min=1, show_default="the highest label + 1")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, where the features are one .npy.")] = None,
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")
    ] = False,
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Features and labels to measure the accuracy on.")] = None,
    output: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("head.safetensors"),
    folder: Annotated[
        Path | None, typer.Option(help="Your identity's folder.", rich_help_panel=_ROUND)
    ] = None,
    cohort: Annotated[
        str | None, typer.Option(help="The cohort to enrol in.", rich_help_panel=_ROUND)
    ] = None,
    admin_key: Annotated[
        str | None,
        typer.Option(
            envvar="VEILSUM_ADMIN_KEY",
            help="The admin's public key; get it from the admin.",
            rich_help_panel=_ROUND,
        ),
    ] = None,
    lineage: Annotated[
        str | None,
        typer.Option(
            help="Your name for this data set; the same records, the same name.", rich_help_panel=_ROUND
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Fit a head in closed form: on this machine, or with others through a round.

    A round takes --folder, --cohort, --admin-key and --lineage together; its terms fix classes, bias and λ.
    """
    with reported(as_json=json_):
        from veilsum import heads  # noqa: PLC0415 - `--help` stays quick

        if folder is None and cohort is None and lineage is None:
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
        else:
            fixed = {"--classes": classes, "--bias": bias, "--ridge": ridge}
            _refuse("the round's terms fix", [name for name, value in fixed.items() if value])
            errand = _errand(
                features, folder, cohort, admin_key, lineage, labels, url, ca, normalise=normalise
            )
            values = heads.through_round(errand, output=output, test=test)
        say(values, as_json=json_, title="Head")


def _errand(
    features: list[Path],
    folder: Path | None,
    cohort: str | None,
    admin_key: str | None,
    lineage: str | None,
    labels: Path | None,
    url: str,
    ca: Path | None,
    *,
    normalise: bool,
) -> "Errand":
    from protocol.errors import Misuse  # noqa: PLC0415 - `--help` stays quick
    from veilsum.contribute import Errand  # noqa: PLC0415 - as above

    if folder is None or cohort is None or admin_key is None or lineage is None:
        raise Misuse("a round takes --folder, --cohort, --admin-key and --lineage together")
    if len(features) != 1:
        raise Misuse("a member contributes one file of features: join them first")
    return Errand(
        folder=folder,
        url=url,
        admin_key=admin_key,
        cohort=cohort,
        features=features[0],
        labels=labels,
        lineage=lineage,
        normalise=normalise,
        ca=ca,
    )


def _refuse(why: str, given: list[str]) -> None:
    from protocol.errors import Misuse  # noqa: PLC0415 - `--help` stays quick

    if given:
        raise Misuse(f"{why} {', '.join(given)}: leave that out")
