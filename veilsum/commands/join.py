"""`veilsum join`: a member takes part in a round with features from a file."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands.options import (
    AdminKey,
    ChangedRecordsMin,
    Extractors,
    Labels,
    Lineage,
    Normalise,
    Output,
    RefuseRareClasses,
)
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say


def join(
    folder: Annotated[Path, typer.Argument(help="The member's identity (`veilsum identity new`).")],
    features: Annotated[
        Path, typer.Option(help="Features and labels: .npz, .npy, .safetensors, .parquet or .csv.")
    ],
    cohort: Annotated[
        str | None, typer.Option(help="The cohort to enrol in.", show_default="the federation's newest")
    ] = None,
    admin_key: AdminKey = None,
    lineage: Lineage = "main",
    labels: Labels = None,
    round_: Annotated[
        str | None, typer.Option("--round", help="A round's id.", show_default="the next one")
    ] = None,
    output: Output = None,
    extractor: Extractors = None,
    members_min: Annotated[int, typer.Option(help="Refuse a smaller cohort.", min=3)] = 3,
    colluders_min: Annotated[
        int | None,
        typer.Option(
            help="Refuse a cohort that withstands fewer colluding members.",
            min=0,
            show_default="a quarter of the roster",
        ),
    ] = None,
    accept_exceptions: Annotated[
        bool,
        typer.Option(
            "--accept-exceptions", help="Take part although the admin lets a round expose a group you are in."
        ),
    ] = False,
    changed_records_min: ChangedRecordsMin = None,
    refuse_rare_classes: RefuseRareClasses = False,
    statistic: Annotated[
        list[str] | None,
        typer.Option(help="Answer this question too, such as ccvr; repeat.", show_default="all but ccvr"),
    ] = None,
    sigma_min: Annotated[
        float,
        typer.Option(
            help="Refuse sums in which any number has noise of a smaller standard deviation than this, from the honest members of the "
            "smallest sum alone: σ/√2 off the diagonal of V, σ/w on U, σ/α on counts. 0 takes exact sums.",
            min=0,
        ),
    ] = 0.0,
    mu_max: Annotated[
        float | None,
        typer.Option(help="Refuse rounds of more μ than this, exact ones included.", show_default="any"),
    ] = None,
    mu_budget: Annotated[
        float, typer.Option(help="Most μ that all noisy rounds over a lineage may take together.")
    ] = 2.0,
    transcript: Annotated[
        bool,
        typer.Option(
            "--transcript", help="Fetch and replay the transcript also where more than 200 members take part."
        ),
    ] = False,
    normalise: Normalise = False,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Enrol, contribute to a round through every phase, and save the verified result.

    Run it again after any interruption: it goes on where it stopped.
    """
    with reported(as_json=json_):
        from veilsum.contribute import Errand, newest_cohort, run  # noqa: PLC0415 - `--help` stays quick
        from veilsum.pinning import pinned  # noqa: PLC0415 - as above

        pin = pinned(folder, admin_key)
        errand = Errand(
            folder=folder,
            url=url,
            admin_key=pin,
            cohort=cohort or newest_cohort(url, pin, ca),
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            round_id=round_,
            extractors=tuple(extractor or ()),
            members_min=members_min,
            colluders_min=colluders_min,
            accept_exceptions=accept_exceptions,
            changed_records_min=changed_records_min,
            publish_rare_classes=not refuse_rare_classes,
            statistics=tuple(statistic or ()),
            sigma_min=sigma_min,
            mu_max=mu_max,
            mu_budget=mu_budget,
            transcript=transcript,
            ca=ca,
        )
        _, values = run(errand, output or folder / "result")
        say(values, as_json=json_, title="Result, verified")
