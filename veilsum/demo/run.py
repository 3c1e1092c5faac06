"""The demo from an empty folder to its report."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from training import save_checkpoint
from veilsum.demo.comparison import compare
from veilsum.demo.consortium import hold_run
from veilsum.demo.facts import (
    NUMBER_TO_BEAT,
    PHASE_NAMES,
    Facts,
    fate,
    gather,
    kibibytes,
    percent,
    power,
    rare_classes,
    seconds,
)
from veilsum.demo.folder import Folder
from veilsum.demo.learning import learn
from veilsum.demo.plan import DemoPlan
from veilsum.demo.processes import Children, unwinding
from veilsum.demo.report import render
from veilsum.demo.screen import Screen
from veilsum.training_run import PREPROCESSING


def run(plan: DemoPlan, output: Path, screen: Screen, *, keep: bool, began_s: float) -> tuple[Facts, Folder]:
    """Run the demo and write what it found.

    Args:
        plan: every choice.
        output: a folder that is new, empty, or an earlier demo's.
        screen: is told what happens.
        keep: leave keys, features, logs and the coordinator's data there.
        began_s: `time.perf_counter` when the command began.

    Raises:
        DemoError: it can't go on. The folder is then left as it is, logs included.
    """
    folder = Folder.claim(output)
    with unwinding():
        learned = learn(plan, folder, screen)
        with Children() as children:
            held = hold_run(plan, learned, folder, screen, children)
        with screen.stage("Comparison") as stage:
            comparison = compare(learned, held, folder)
            stage.outcome = f"masked and plain W differ by {power(comparison.max_rel_diff)} of max|W|, same λ"
        facts = gather(plan.seed, learned, held, comparison, time.perf_counter() - began_s)
        with screen.stage("Report") as stage:
            save_checkpoint(comparison.calibrated, folder.calibrated, preprocessing=PREPROCESSING)
            comparison.result.save(folder.result)
            folder.report.write_text(render(facts), encoding="utf-8")
            folder.summary.write_text(json.dumps(facts.summary(), indent=2) + "\n", encoding="utf-8")
            if not keep:
                folder.tidy()
            stage.outcome = f"in {folder.root}"
    return facts, folder


def print_table(facts: Facts, folder: Folder, console: Console) -> None:
    """Print the run's accuracies, survivors, cost and times."""
    table = Table(
        title="veilsum demo", title_justify="left", title_style="bold", show_header=False, pad_edge=False
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(facts):
        if name is None:
            table.add_section()
        else:
            table.add_row(name, value)
    console.print(table)
    console.print(NUMBER_TO_BEAT)
    console.print(
        "SphereFed trains the extractor under a fixed head, which is never sent. FFC then fits that head in closed form from summed "
        f"statistics. The sum is exact, without noise. {rare_classes(facts)}",
        style="dim",
    )
    console.print(f"Report   {folder.report}\nSummary  {folder.summary}", soft_wrap=True)


def _rows(facts: Facts) -> list[tuple[str | None, str]]:
    accuracies = facts.accuracies
    return [
        ("FedAvg, trained head", f"{percent(accuracies.fedavg)}  same members, model and rounds"),
        (
            "FedAvg, plain FFC",
            f"{percent(accuracies.fedavg_plain)}  the survivors' records pooled in the clear",
        ),
        ("SphereFed, fixed head", f"{percent(accuracies.before)}  as training left it"),
        (
            "SphereFed, masked FFC",
            f"{percent(accuracies.masked)}  secure sum over {len(facts.survivors)} members",
        ),
        (
            "SphereFed, plain FFC",
            f"{percent(accuracies.plain)}  the survivors' records pooled in the clear",
        ),
        ("masked − plain W", f"{power(facts.max_rel_diff)} of max|W|, both with λ = {facts.ridge:.4g}"),
        (None, ""),
        (
            "survivors",
            f"{len(facts.survivors)} of {len(facts.members)}, certified by {facts.rules.votes} votes",
        ),
        *((f"lost: {lost.member}", fate(facts, lost.member)) for lost in facts.lost),
        ("results verified", f"{len(facts.verified)}, from the members' disks, all the same"),
        (None, ""),
        ("sent by a member", f"{kibibytes(facts.upload_bytes)} for {facts.elements:,} masked numbers"),
        *((PHASE_NAMES[name], seconds(value)) for name, value in facts.seconds.items()),
    ]
