"""`veilsum speak`: a client contributes once to a round with mask helpers."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands.options import (
    AdminKey,
    ClientLimits,
    Labels,
    Lineage,
    Normalise,
    Output,
    gathered,
)
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say


@gathered
def speak(
    folder: Annotated[Path, typer.Argument(help="The client's identity (`veilsum identity new`).")],
    round_: Annotated[str, typer.Option("--round", help="The round's id.")],
    admin_key: AdminKey = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Features and labels: .npz, .npy, .safetensors, .parquet or .csv.",
            show_default="what was made",
        ),
    ] = None,
    lineage: Lineage = "main",
    labels: Labels = None,
    outcome: Annotated[
        bool,
        typer.Option(
            "--outcome", help="Upload nothing: wait for the round's end and verify that you were counted."
        ),
    ] = False,
    output: Output = None,
    normalise: Normalise = False,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
    *,
    limits: ClientLimits,
) -> None:
    """Contribute to a round with mask helpers, once, and be gone; with --outcome see later whether you were counted.

    This is another trust statement than `veilsum join`: two helpers together with the coordinator could read your vector.
    Run it again after any interruption: it sends the same bytes, or begins again where none had left.
    """
    with reported(as_json=json_):
        from veilsum import speaking
        from veilsum.pinning import pinned

        speech = speaking.Speech(
            folder=folder,
            url=url,
            policy=limits.policy(pinned(folder, admin_key)),
            round_id=round_,
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            ca=ca,
        )
        if outcome:
            values = speaking.outcome(speech, output or folder / "result")
            say(values, as_json=json_, title="Result, verified")
        else:
            say(speaking.speak(speech), as_json=json_, title="Uploaded")
