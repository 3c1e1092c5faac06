"""`veilsum speak`: a client contributes once to a round with mask helpers."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say


def speak(
    folder: Annotated[Path, typer.Argument(help="The client's identity (`veilsum identity new`).")],
    round_: Annotated[str, typer.Option("--round", help="The round's id.")],
    admin_key: Annotated[
        str, typer.Option(envvar="VEILSUM_ADMIN_KEY", help="The admin's public key; get it from the admin.")
    ],
    features: Annotated[
        Path | None,
        typer.Option(
            help="Features and labels: .npz, .npy, .safetensors or .parquet.", show_default="what was made"
        ),
    ] = None,
    lineage: Annotated[
        str, typer.Option(help="Your name for this data set; the same records, the same name.")
    ] = "main",
    labels: Annotated[Path | None, typer.Option(help="Labels, where the features are a .npy.")] = None,
    outcome: Annotated[
        bool,
        typer.Option(
            "--outcome", help="Upload nothing: wait for the round's end and verify that you were counted."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Where the result goes.", show_default="FOLDER/result")
    ] = None,
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="Accept only this extractor digest; repeat.", show_default="the roster's"),
    ] = None,
    members_min: Annotated[int, typer.Option(help="Refuse a roster of fewer clients.", min=3)] = 3,
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
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")
    ] = False,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Contribute to a round with mask helpers, once, and be gone; with --outcome see later whether you were counted.

    This is another trust statement than `veilsum join`: two helpers together with the coordinator could read your vector.
    Run it again after any interruption: it sends the same bytes, or begins again where none had left.
    """
    with reported(as_json=json_):
        from veilsum import speaking  # noqa: PLC0415 - `--help` stays quick

        speech = speaking.Speech(
            folder=folder,
            url=url,
            admin_key=admin_key,
            round_id=round_,
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            extractors=tuple(extractor or ()),
            members_min=members_min,
            changed_records_min=changed_records_min,
            publish_rare_classes=not refuse_rare_classes,
            ca=ca,
        )
        if outcome:
            values = speaking.outcome(speech, output or folder / "result")
            say(values, as_json=json_, title="Result, verified")
        else:
            say(speaking.speak(speech), as_json=json_, title="Uploaded")
