"""`veilsum demo`: a whole federation on this machine, with real processes."""

import time
from pathlib import Path
from typing import Annotated

import typer

from veilsum.cli.console import JSON_OUTPUT, print_note, print_values, require_extras
from veilsum.cli.options import report_errors


@report_errors
def demo(
    output: Annotated[
        Path, typer.Option(help="A folder used only by the demo; an earlier demo there is replaced.")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Fixes data, partition and training.", min=0, max=2**32 - 1)] = 0,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep the members' and the coordinator's folders, with keys and records."
        ),
    ] = False,
    withhold: Annotated[
        bool,
        typer.Option(
            "--withhold", help="Give one digit to only two members, so that it is left out of the sum."
        ),
    ] = False,
) -> None:
    """Train on unevenly spread digits, then calibrate the head by a secure sum between processes on this machine.

    Starts a coordinator and twelve members, rehearses over canaries, mends the member that the rehearsal names, kills two members during the run, and compares the head with a fit in the clear.

    Exits with 1 if they differ, or if the head is no better than FedAvg's.
    """
    began_s = time.perf_counter()
    require_extras("the demo", "service", "training")
    from veilsum.cli.demo.processes import preload_modules

    preload_modules()  # while this process loads PyTorch
    from rich.console import Console

    from veilsum.cli.demo.plan import DemoPlan
    from veilsum.cli.demo.run import print_table, run_demo
    from veilsum.cli.demo.screen import Screen

    facts, folder = run_demo(DemoPlan(seed, withhold=withhold), output, Screen(), keep=keep, began_s=began_s)
    if JSON_OUTPUT.get():
        print_values(facts.summary_values())
    else:
        print_table(facts, folder, Console(highlight=False))
    for fault in facts.faults:
        print_note(f"veilsum: {fault}")
    if facts.faults:
        raise typer.Exit(1)
