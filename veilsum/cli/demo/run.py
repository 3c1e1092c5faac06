"""The demo from an empty folder to its report."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from training.checkpoint import save_checkpoint
from veilsum.cli import plots
from veilsum.cli.demo import facts as wording
from veilsum.cli.demo.comparison import compare_heads
from veilsum.cli.demo.consortium import hold_rehearsals, hold_run
from veilsum.cli.demo.coordinator import await_coordinator, running_coordinator
from veilsum.cli.demo.facts import (
    NUMBER_TO_BEAT,
    PHASE_NAMES,
    Facts,
    fate_of,
    format_kibibytes,
    format_percent,
    format_power,
    format_seconds,
    gather_facts,
    rare_classes,
)
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.learning import train_federation
from veilsum.cli.demo.plan import DemoPlan
from veilsum.cli.demo.processes import Children, unwind_on_signal
from veilsum.cli.demo.screen import Screen
from veilsum.cli.training_run import DIGITS_PREPROCESSING
from veilsum.protocol.rest import TRUST_SENTENCE


def run_demo(
    plan: DemoPlan, output: Path, screen: Screen, *, keep: bool, began_s: float
) -> tuple[Facts, Folder]:
    """Run the demo, begun at `began_s` of `time.perf_counter`, and write what it found.

    With `keep`, keys, features and the coordinator's data stay in the folder.

    Raises:
        DemoError: it can't go on. The folder is then left as it is.
    """
    folder = Folder.claim_folder(output)
    torch.set_num_threads(1)  # on images this small more threads only wait for each other
    with unwind_on_signal(), ThreadPoolExecutor(1) as beside:
        with Children() as children, running_coordinator(children, folder) as (operator, url):
            learned = train_federation(plan, folder, screen)
            await_coordinator(children, operator, url, screen)
            rehearsals = hold_rehearsals(plan, learned, folder, screen, children, operator, url)
            # The run waits a while for the members that are killed.
            fedavg = beside.submit(learned.train_fedavg)
            beside.submit(import_module, "matplotlib.backends.backend_svg")
            held = hold_run(rehearsals, learned, screen)
        with screen.show_stage("Comparison") as stage:
            comparison = compare_heads(learned, held, fedavg.result(), folder)
            stage.outcome = (
                f"masked and plain W differ by {format_power(comparison.max_rel_diff)} of max|W|, same λ"
            )
        facts = gather_facts(plan.seed, learned, held, comparison, time.perf_counter() - began_s)
        with screen.show_stage("Report") as stage:
            save_checkpoint(comparison.calibrated, folder.calibrated, preprocessing=DIGITS_PREPROCESSING)
            comparison.result.save(folder.result)
            folder.report.write_text(render_report(facts), encoding="utf-8")
            folder.summary.write_text(json.dumps(facts.summary_values(), indent=2) + "\n", encoding="utf-8")
            if not keep:
                folder.remove_secrets()
            stage.outcome = f"in {folder.root}"
    return facts, folder


def render_report(facts: Facts) -> str:
    """The demo's report, as one HTML page that loads nothing else."""
    known, shown = ~np.isnan(facts.per_class.before), np.isfinite(facts.gcv)
    steps = {PHASE_NAMES[name]: value for name, value in facts.seconds.items() if name != "total"}
    return plots.render_page(
        "veilsum.cli.demo",
        facts=facts,
        wording=wording,
        tried=np.count_nonzero(shown),
        trust=TRUST_SENTENCE.replace("`a`", f"a = {facts.colluders}"),
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
    table.add_row("FedAvg, trained head", f"{format_percent(heads.fedavg)}  same members, model and rounds")
    table.add_row("FedAvg, plain FFC", f"{format_percent(heads.fedavg_plain)}  {pooled}")
    table.add_row("SphereFed, fixed head", f"{format_percent(heads.before)}  before calibration")
    table.add_row("SphereFed, masked FFC", f"{format_percent(heads.masked)}  secure sum over {whole} members")
    table.add_row("SphereFed, plain FFC", f"{format_percent(heads.plain)}  {pooled}")
    difference = f"{format_power(facts.max_rel_diff)} of max|W|, both with λ = {facts.ridge:.4g}"
    table.add_row("masked − plain W", difference)
    table.add_section()
    table.add_row("first rehearsal", f"{facts.mended} not ready: its canaries differ by {facts.canaries}")
    table.add_row("second rehearsal", f"{members} of {members} ready. Rehearsals spent nothing")
    table.add_row("survivors", f"{whole} of {members}, certified by {facts.votes} votes")
    for lost in facts.lost:
        table.add_row(f"lost: {lost.member}", fate_of(facts, lost.member))
    table.add_row("results verified", f"{len(facts.verified)}, from the members' disks, all the same")
    table.add_section()
    sent = f"{format_kibibytes(facts.upload_bytes)} for {facts.elements:,} masked numbers"
    table.add_row("sent by a member", sent)
    for name, value in facts.seconds.items():
        table.add_row(PHASE_NAMES[name], format_seconds(value))
    console.print(table)
    console.print(NUMBER_TO_BEAT)
    console.print(
        "SphereFed trains the extractor under a fixed head, which is never sent. FFC then fits that head in closed form from summed "
        f"statistics. The sum is exact, without noise. {rare_classes(facts)}",
        style="dim",
    )
    console.print(f"Report   {folder.report}\nSummary  {folder.summary}", soft_wrap=True)
