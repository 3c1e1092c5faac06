"""`veilsum join`: a member takes part in a round with features from a file."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say


def join(
    folder: Annotated[Path, typer.Argument(help="The member's identity (`veilsum identity new`).")],
    cohort: Annotated[str, typer.Option(help="The cohort to enrol in.")],
    admin_key: Annotated[
        str, typer.Option(envvar="VEILSUM_ADMIN_KEY", help="The admin's public key; get it from the admin.")
    ],
    features: Annotated[
        Path, typer.Option(help="Features and labels: .npz, .npy, .safetensors or .parquet.")
    ],
    lineage: Annotated[
        str, typer.Option(help="Your name for this data set; the same records, the same name.")
    ],
    labels: Annotated[Path | None, typer.Option(help="Labels, where the features are a .npy.")] = None,
    round_: Annotated[
        str | None, typer.Option("--round", help="A round's id.", show_default="the next one")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where the result goes.", show_default="FOLDER/result")
    ] = None,
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="Accept only this extractor digest; repeat.", show_default="the roster's"),
    ] = None,
    members_min: Annotated[int, typer.Option(help="Refuse a smaller cohort.", min=3)] = 3,
    accept_exceptions: Annotated[
        bool,
        typer.Option(
            "--accept-exceptions", help="Take part although the admin lets a round expose a group you are in."
        ),
    ] = False,
    changed_records_min: Annotated[
        int | None,
        typer.Option(
            help="How many records must have changed before a lineage is used again.",
            min=0,
            show_default="10",
        ),
    ] = None,
    refuse_rare_classes: Annotated[
        bool, typer.Option("--refuse-rare-classes", help="Refuse a federation that publishes rare classes.")
    ] = False,
    transcript: Annotated[
        bool,
        typer.Option(
            "--transcript", help="Fetch and replay the transcript also where more than 200 members take part."
        ),
    ] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")
    ] = False,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Enrol, contribute to a round through every phase, and save the verified result.

    Run it again after any interruption: it goes on where it stopped.
    """
    with reported(as_json=json_):
        from veilsum.contribute import Errand, run  # noqa: PLC0415 - `--help` stays quick

        errand = Errand(
            folder=folder,
            url=url,
            admin_key=admin_key,
            cohort=cohort,
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            round_id=round_,
            extractors=tuple(extractor or ()),
            members_min=members_min,
            accept_exceptions=accept_exceptions,
            changed_records_min=changed_records_min,
            publish_rare_classes=not refuse_rare_classes,
            transcript=transcript,
            ca=ca,
        )
        _, values = run(errand, output or folder / "result")
        say(values, as_json=json_, title="Result, verified")
