"""The demo from an empty folder to its report."""

import json
import time
from pathlib import Path

from training import save_checkpoint
from veilsum.demo.comparison import compare
from veilsum.demo.consortium import hold_run
from veilsum.demo.facts import Facts, gather
from veilsum.demo.folder import Folder
from veilsum.demo.learning import learn
from veilsum.demo.plan import DemoPlan
from veilsum.demo.processes import Children, unwinding
from veilsum.demo.report import render
from veilsum.demo.screen import Screen
from veilsum.demo.wording import power
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
