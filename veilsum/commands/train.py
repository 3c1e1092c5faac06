"""`veilsum train`: federated training on this machine, up to the features that a round calibrates."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, fail, note, reported, say


def train(
    method: Annotated[str, typer.Option(help="spherefed or fedavg.")] = "spherefed",
    members: Annotated[int, typer.Option(help="How many members share the digits.", min=1)] = 12,
    alpha: Annotated[
        float, typer.Option(help="Dirichlet concentration; smaller is more uneven.", min=1e-6)
    ] = 0.1,
    rounds: Annotated[int, typer.Option(help="Rounds of training.", min=1)] = 20,
    local_epochs: Annotated[int, typer.Option(help="Epochs of a member in a round.", min=1)] = 4,
    participation: Annotated[
        float, typer.Option(help="Share of members in a round.", min=0.01, max=1.0)
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Fixes partition, weights and order.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Processes; the result is the same.", min=1)] = 1,
    output: Annotated[
        Path, typer.Option(help="A folder for the extractor and each member's features.")
    ] = Path("runs/train"),
    json_: AsJson = False,
) -> None:
    """Train a feature extractor on scikit-learn's digits, unevenly spread, and write every member's features."""
    try:
        import sklearn  # noqa: F401, PLC0415 - an extra
        import torch  # noqa: F401, PLC0415 - as above
    except ImportError:
        fail("training needs its extra: pip install 'veilsum[training]'", as_json=json_)
    with reported(as_json=json_):
        from veilsum.training_run import Choices, run  # noqa: PLC0415 - torch takes seconds

        choices = Choices(
            method=method,
            members=members,
            alpha=alpha,
            rounds=rounds,
            local_epochs=local_epochs,
            participation=participation,
            seed=seed,
            workers=workers,
        )
        say(run(choices, output, note), as_json=json_, title="Trained")
