"""`veilsum train`: an experiment from its file, up to a calibrated head."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, fail, lacks, note, reported, say, table


class Through(StrEnum):
    """Which way the last step's sums go."""

    PLAIN = "plain"
    SERVICE = "service"
    BOTH = "both"


class Precision(StrEnum):
    """What numbers are multiplied in."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def train(
    experiment: Annotated[
        str, typer.Argument(help="A shipped experiment's name (--list), or a .toml file.")
    ] = "digits-spherefed",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="One of the file's variants; of several, the last has its way. The paper's settings where none."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE laid over the file, such as training.rounds=5."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Fixes everything; several are run in turn.", min=0)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="VEILSUM_DATA", help="The data folder; digits need none.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; the result is the same.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="cpu, or torch's name of a GPU.")] = "cpu",
    precision: Annotated[
        Precision,
        typer.Option(help="What numbers are multiplied in; auto is bfloat16 on GPUs that have it."),
    ] = Precision.AUTO,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Compile steps first, by torch.compile: for long runs, most of all on a GPU."
        ),
    ] = False,
    snapshot_every: Annotated[int, typer.Option(help="Rounds from one snapshot to the next.", min=1)] = 1,
    through: Annotated[
        Through,
        typer.Option(
            help="Sum FFC's statistics in the clear, masked through a coordinator on this machine, or both; LDA and class means follow."
        ),
    ] = Through.PLAIN,
    features: Annotated[
        bool, typer.Option("--features", help="Write every member's features, for `veilsum member join`.")
    ] = False,
    analyse: Annotated[
        bool,
        typer.Option(
            "--analyse",
            help="Keep what the report's pictures of models and heads show; trains every member once more.",
        ),
    ] = False,
    track: Annotated[
        list[str] | None, typer.Option(help="tensorboard or mlflow: charts of the rounds.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="A folder; a run that was interrupted goes on from what lies there.")
    ] = Path("runs/train"),
    list_: Annotated[
        bool, typer.Option("--list", help="Show the experiments that come with veilsum.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Train federated on this machine, calibrate the head, and keep result and extractor."""
    if lacks("sklearn", "torch"):
        fail("training needs its extra: pip install 'veilsum[training]'", as_json=json_)
    from training import DataError, DivergedError, ResumeError
    from training.experiments import ConfigError, shipped
    from training.tracking import TrackingError
    from veilsum.demo.errors import DemoError
    from veilsum.training_run import Choices, listing, run_all

    with reported(as_json=json_):
        try:
            if list_:
                rows = listing(shipped())
                if json_:
                    say({"experiments": rows}, as_json=True)
                else:
                    table("Experiments", rows)
                return
            choices = Choices(
                experiment=experiment,
                variants=tuple(variant or ()),
                changes=tuple(changes or ()),
                seeds=tuple(dict.fromkeys(seed or [0])),
                data=data,
                workers=workers,
                device=device,
                precision=precision.value,
                compiled=compiled,
                snapshot_every=snapshot_every,
                features=features,
                analyse=analyse,
                through=through.value,
                track=tuple(track or ()),
            )
            say(run_all(choices, output, note), as_json=json_, title="Trained")
        except (ConfigError, DataError, DivergedError, ResumeError, TrackingError, DemoError) as error:
            fail(str(error), as_json=json_)
