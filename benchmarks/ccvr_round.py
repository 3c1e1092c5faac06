"""CCVR's sum over HTTP, after the count of its classes, at full length.

l = 1280, C = 100: 82 million elements, ten members and a coordinator in separate processes.

Reports the CPU seconds and peak memory of each process from the opening on, next to the floor of primitive operations for a vector of that
length (at 64 bits, since the floor has no 48), and the resulting head next to the one from the members' pooled records.
Ten members need two accumulators each at the same time: 14 GB of memory, 4 GB more for their rows, and 5 GB of disk.

    .venv/bin/python -m benchmarks.ccvr_round --output runs/bench-ccvr.json
    .venv/bin/python -m benchmarks.ccvr_round --dim 64 --classes 10
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coordinator_memory import forget_peak, resident
from benchmarks.crews import hear, tell
from benchmarks.floor import floor
from benchmarks.founding import Founded, question_of
from benchmarks.http_round import PATIENCE_S, Plan, federation
from benchmarks.secure_sum import ROOT
from benchmarks.serving import Served, coordinator
from client_sdk import AsyncMember, Identity, Records
from veilsum.calibration.layout import ccvr_layout
from veilsum.protocol.statistics import CCVR
from veilsum.protocol.study import CCVRHead
from veilsum.study.answers import solve_alone

TESTED = 2_000
RING_BITS = 48
ALLOWANCE_BYTES = 64_000_000
"""A member's memory limit in addition to two accumulators and its rows; the coordinator's is 200 MB."""
COUNT_POLL_S = 0.1
COORDINATOR_BYTES = 200_000_000


def records_of(plan: Plan, number: int, records: int) -> Records:
    """Make a member's non-negative features around their class's direction, as after a ReLU; reproducible from the number."""
    centres = np.abs(np.random.default_rng(0).normal(size=(plan.classes, plan.dim)))
    rng = np.random.default_rng(1 + number)
    labels = (
        rng.permutation(records) % plan.classes
    )  # equally many of each class, so that the count publishes all
    features = np.abs(centres[labels] + 1.5 * rng.normal(size=(records, plan.dim)))
    return Records(features, labels)


async def part(
    plan: Plan, url: str, folder: Path, ids: Sequence[str], founded: Founded, parent: Connection
) -> None:
    """Enrol one member, and take part until its result is verified."""
    [own] = ids
    number = int(own.rpartition("-")[2])
    records = records_of(plan, number, founded.question.records.least)
    identity = Identity.load(folder / own)
    async with AsyncMember(url, identity, founded.policy, patience_s=PATIENCE_S) as member:
        parent.send(("ready", None))
        await member.enrol(await asyncio.to_thread(parent.recv), records)
        parent.send(("enrolled", None))
        round_id = await asyncio.to_thread(parent.recv)
        before, begun_s = resident(os.getpid(), "VmRSS"), time.process_time()
        forget_peak(os.getpid())
        result = await member.contribute(round_id)
        cpu_s, peak = time.process_time() - begun_s, resident(os.getpid(), "VmHWM") - before
        parent.send(("ended", (cpu_s, peak, None if number else result.head)))


def played(plan: Plan, served: Served) -> dict[str, Any]:
    """Play the round; return its figures."""
    question = question_of(
        plan.members, plan.dim, plan.classes, RING_BITS, statistics=[{"kind": "ccvr"}], withhold={"margin": 0}
    )
    with federation(plan, served, part, question) as (operator, founded, crews):
        tell(crews, cohort := founded.open_cohort(operator))
        hear(crews, "enrolled")
        before, cpu_s, begun_s = served.resident_bytes, served.cpu_s, time.perf_counter()
        forget_peak(served.pid)
        count = operator.open_round(cohort).round
        tell(crews, count)
        while operator.round(count).state != "done":
            time.sleep(COUNT_POLL_S)
        round_id = operator.open_round(cohort).round  # a member's call leads on to the sum
        heard = hear(crews, "ended")
        seconds, view = time.perf_counter() - begun_s, operator.round(round_id)
        if view.state != "done" or len(view.survivors) != plan.members:
            raise SystemExit(f"the round is {view.state}, with {len(view.survivors)} members")
        elements = ccvr_layout(plan.dim, plan.classes).elements
        least = founded.question.records.least
        pooled = [records_of(plan, number, least) for number in range(plan.members)]
        batches = [(each.features, each.labels) for each in pooled]
        after = CCVRHead(samples_per_class=100, power=0.5)
        plain = solve_alone(plan.dim, plan.classes, CCVR(), batches, normalise=True, ccvr=after).answer.head
        head = next(each for _, _, each in heard if each is not None)
        test = records_of(plan, plan.members, TESTED)
        assert plain is not None
        found, plainly = (each.predict(test.features, normalise=True) for each in (head, plain))
        return {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "members": plan.members,
            "dim": plan.dim,
            "classes": plan.classes,
            "elements": elements,
            "ring_bits": RING_BITS,
            "seconds": round(seconds, 1),
            "phase_seconds": {phase: round(s, 1) for phase, s in view.phase_seconds.items()},
            "member_cpu_s": round(float(np.median([cpu for cpu, _, _ in heard])), 2),
            "member_peak_bytes": max(peak for _, peak, _ in heard),
            "member_bound_bytes": 8 * (2 * elements + least * plan.dim) + ALLOWANCE_BYTES,
            "coordinator_cpu_s": round(served.cpu_s - cpu_s, 2),
            "coordinator_peak_bytes": resident(served.pid, "VmHWM") - before,
            "coordinator_bound_bytes": 2 * 8 * elements + COORDINATOR_BYTES,
            "accuracy": float((found == test.labels).mean()),
            "accuracy_in_the_clear": float((plainly == test.labels).mean()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--output", type=Path, default=ROOT / "runs/bench-ccvr.json")
    given = parser.parse_args()
    plan = Plan(given.members, given.dim, given.classes, processes=given.members)
    with tempfile.TemporaryDirectory(prefix="veilsum-ccvr-") as folder, coordinator(Path(folder)) as served:
        found = played(plan, served)
    least = floor(plan.members, 64, 0, found["elements"], repeats=1)
    found |= {
        "floor_member_cpu_s": round(least["client_cpu_s"], 2),
        "floor_coordinator_cpu_s": round(least["server_cpu_s"], 2),
    }
    print(text := json.dumps(found, indent=1))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(f"{text}\n", encoding="utf-8")
    if any(found[f"{who}_peak_bytes"] > found[f"{who}_bound_bytes"] for who in ("member", "coordinator")):
        sys.exit("ccvr_round: a process takes more memory than it may")


if __name__ == "__main__":
    main()
