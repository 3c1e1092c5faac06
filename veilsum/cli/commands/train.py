"""`veilsum train`: run an experiment from its file, up to a calibrated head."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from veilsum.cli.console import end_with_error, print_note, print_table, print_values, require_extras
from veilsum.cli.options import report_errors


@report_errors
def train(
    experiment: Annotated[
        str, typer.Argument(help="An experiment file (.toml), or the name of an installed one (--list).")
    ] = "digits-spherefed",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="A variant of the file; later ones override earlier ones.",
            show_default="the paper's settings",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting of the file, e.g. training.rounds=5; repeat."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Random seed; repeat for several runs.", min=0, max=2**32 - 1)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="VEILSUM_DATA", help="The data folder; not needed for digits.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; the result does not depend on it.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="A torch device: cpu, cuda, cuda:1.")] = "cpu",
    features: Annotated[
        bool,
        typer.Option(
            "--features", help="Write each member's features, for `veilsum member join` or `pilot`."
        ),
    ] = False,
    snapshot_every: Annotated[
        int, typer.Option(help="Rounds between snapshots, from which an interrupted run resumes.", min=1)
    ] = 5,
    evaluate_every: Annotated[
        int, typer.Option("--eval-every", help="Rounds between evaluations on the test records.", min=1)
    ] = 1,
    output: Annotated[Path, typer.Option(help="Output folder; an interrupted run resumes from it.")] = Path(
        "runs/train"
    ),
    list_: Annotated[bool, typer.Option("--list", help="List the installed experiments.")] = False,
) -> None:
    """Run a federated-learning experiment on this machine, calibrate the head, and save result and extractor."""
    require_extras("training", "training")
    from concurrent.futures.process import BrokenProcessPool

    from training.data.folder import DataError
    from training.experiments.choices import ConfigError
    from training.experiments.config import list_installed
    from training.federated import DivergedError
    from training.resume import ResumeError
    from veilsum.cli.training_run import Choices, list_experiments, run_all

    try:
        if list_:
            print_table("Experiments", list_experiments(list_installed()))
            return
        sys.path.append(str(Path.cwd()))  # for import paths in the experiment
        choices = Choices(
            experiment=experiment,
            variants=tuple(variant or ()),
            changes=tuple(changes or ()),
            seeds=tuple(dict.fromkeys(seed or [0])),
            data=data,
            workers=workers,
            device=device,
            features=features,
            snapshot_every=snapshot_every,
            evaluate_every=evaluate_every,
        )
        print_values(run_all(choices, output, print_note), "Trained")
    except (ConfigError, DataError, DivergedError, ResumeError) as error:
        end_with_error(str(error))
    except BrokenProcessPool:
        end_with_error(
            "a worker process was killed, perhaps for lack of memory: run the same command again, with fewer --workers; it resumes"
        )
