"""`veilsum join`: a member takes part in a round with features from a file."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands.options import (
    AdminKey,
    Labels,
    Lineage,
    MemberLimits,
    Normalise,
    Output,
    gathered,
)
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say


@gathered
def join(
    folder: Annotated[Path, typer.Argument(help="The member's identity (`veilsum identity new`).")],
    features: Annotated[
        Path | None,
        typer.Option(
            help="Features and labels: .npz, .npy, .safetensors, .parquet or .csv.",
            show_default="what was made",
        ),
    ] = None,
    cohort: Annotated[
        str | None,
        typer.Option(
            help="The cohort to enrol in.", show_default="the one it stopped in, or the federation's newest"
        ),
    ] = None,
    admin_key: AdminKey = None,
    lineage: Lineage = "main",
    labels: Labels = None,
    round_: Annotated[
        str | None, typer.Option("--round", help="A round's id.", show_default="the next one")
    ] = None,
    output: Output = None,
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
    *,
    limits: MemberLimits,
) -> None:
    """Enrol, contribute to a round through every phase, and save the verified result.

    Run it again after any interruption: it goes on where it stopped.
    """
    with reported(as_json=json_):
        from veilsum.contribute import Errand, cohort_of, run
        from veilsum.pinning import pinned

        policy = limits.policy(pinned(folder, admin_key))
        errand = Errand(
            folder=folder,
            url=url,
            policy=policy,
            cohort=cohort or cohort_of(folder, url, policy, round_, ca),
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            round_id=round_,
            transcript=transcript,
            ca=ca,
        )
        _, values = run(errand, output or folder / "result")
        say(values, as_json=json_, title="Result, verified")
