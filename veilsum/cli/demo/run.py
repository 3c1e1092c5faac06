"""The demo from an empty folder to its report."""

import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from training.checkpoint import save_checkpoint
from veilsum.cli import plots
from veilsum.cli.demo import facts as wording
from veilsum.cli.demo.comparison import compare
from veilsum.cli.demo.consortium import hold_run
from veilsum.cli.demo.facts import (
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
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.learning import learn
from veilsum.cli.demo.plan import DemoPlan
from veilsum.cli.demo.processes import Children, unwinding
from veilsum.cli.demo.screen import Screen
from veilsum.cli.training_run import PREPROCESSING
from veilsum.protocol.rest import TRUST


def run(plan: DemoPlan, output: Path, screen: Screen, *, keep: bool, began_s: float) -> tuple[Facts, Folder]:
    """Run the demo, begun at `began_s` of `time.perf_counter`, and write what it found.

    With `keep`, keys, features and the coordinator's data stay in the folder.

    Raises:
        DemoError: it can't go on. The folder is then left as it is.
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


def render(facts: Facts) -> str:
    """The demo's report, as one HTML page that loads nothing else."""
    known, shown = ~np.isnan(facts.per_class.before), np.isfinite(facts.gcv)
    steps = {PHASE_NAMES[name]: value for name, value in facts.seconds.items() if name != "total"}
    return plots.page(
        "veilsum.cli.demo",
        facts=facts,
        wording=wording,
        tried=np.count_nonzero(shown),
        trust=TRUST.replace("`a`", f"a = {facts.colluders}"),
        plots={
            "classes": plots.per_class_accuracy(
                facts.per_class.before[known],
                facts.per_class.masked[known],
                class_names=[str(label) for label in np.flatnonzero(known)],
            ),
            "ridge": plots.ridge_curve(facts.grid[shown], facts.gcv[shown], facts.ridge),
            "labels": plots.label_distribution(facts.label_counts),
            "phases": plots.phase_timeline(steps),
        },
    )


def print_table(facts: Facts, folder: Folder, console: Console) -> None:
    """Print the run's accuracies, survivors, cost and times."""
    table = Table(
        title="veilsum demo", title_justify="left", title_style="bold", show_header=False, pad_edge=False
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    heads, pooled = facts.accuracies, "the survivors' records pooled in the clear"
    members, whole = len(facts.members), len(facts.survivors)
    table.add_row("FedAvg, trained head", f"{percent(heads.fedavg)}  same members, model and rounds")
    table.add_row("FedAvg, plain FFC", f"{percent(heads.fedavg_plain)}  {pooled}")
    table.add_row("SphereFed, fixed head", f"{percent(heads.before)}  as training left it")
    table.add_row("SphereFed, masked FFC", f"{percent(heads.masked)}  secure sum over {whole} members")
    table.add_row("SphereFed, plain FFC", f"{percent(heads.plain)}  {pooled}")
    difference = f"{power(facts.max_rel_diff)} of max|W|, both with λ = {facts.ridge:.4g}"
    table.add_row("masked − plain W", difference)
    table.add_section()
    table.add_row("survivors", f"{whole} of {members}, certified by {facts.votes} votes")
    for lost in facts.lost:
        table.add_row(f"lost: {lost.member}", fate(facts, lost.member))
    table.add_row("results verified", f"{len(facts.verified)}, from the members' disks, all the same")
    table.add_section()
    sent = f"{kibibytes(facts.upload_bytes)} for {facts.elements:,} masked numbers"
    table.add_row("sent by a member", sent)
    for name, value in facts.seconds.items():
        table.add_row(PHASE_NAMES[name], seconds(value))
    console.print(table)
    console.print(NUMBER_TO_BEAT)
    console.print(
        "SphereFed trains the extractor under a fixed head, which is never sent. FFC then fits that head in closed form from summed "
        f"statistics. The sum is exact, without noise. {rare_classes(facts)}",
        style="dim",
    )
    console.print(f"Report   {folder.report}\nSummary  {folder.summary}", soft_wrap=True)
