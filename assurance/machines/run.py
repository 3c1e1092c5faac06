"""The long run of the state machines: `make slow`.

Batches have consecutive numbers and run in separate processes, so that a batch that breaks a rule can be rerun by its number. Exit status 1
if any rule was broken.
"""

# ruff: noqa: T201 - a command prints

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from time import monotonic
from typing import Any

from assurance.machines.campaign import Batch, run_batch
from assurance.reports import arguments, report

SHARES = {"hostile": 0.7, "loyal": 0.3}
"""Shares of the steps."""
RUNS = {"hostile": 100, "loyal": 60}
"""Runs in a batch: enough to go deep, and few enough that the engine's memory of them is dropped in time."""


def campaign(
    pool: ProcessPoolExecutor, processes: int, part: str, wanted: int, first: int
) -> Iterator[Batch]:
    """Yield batches of one machine until they have made this many steps."""
    numbers, done = count(first), 0
    waiting: set[Future[Batch]] = set()
    while done < wanted:
        while len(waiting) < processes:
            waiting.add(pool.submit(run_batch, part, next(numbers), RUNS[part], shrink=True))
        finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for each in finished:
            batch = each.result()
            done += batch.steps
            yield batch
    for each in waiting:
        yield each.result()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--steps", type=int, default=1_000_000, help="steps of the two state machines together"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first batch of each part")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    wanted = {part: int(chosen.steps * share) for part, share in SHARES.items()}
    began, parts, violations = monotonic(), dict[str, dict[str, Any]](), list[str]()
    with ProcessPoolExecutor(
        chosen.processes, multiprocessing.get_context("spawn"), max_tasks_per_child=20
    ) as pool:
        for part, most in wanted.items():
            started, steps, receives, seconds, reached = monotonic(), 0, 0, 0.0, Counter[str]()
            for number, batch in enumerate(campaign(pool, chosen.processes, part, most, chosen.first)):
                steps, receives, seconds = (
                    steps + batch.steps,
                    receives + batch.receives,
                    seconds + batch.seconds,
                )
                reached += batch.reached
                violations += [f"{part}: {what}" for what in batch.violations]
                if number % 10 == 0:
                    print(f"{part}: {steps:,} of {most:,}, {len(violations)} rules broken", flush=True)
            parts[part] = {
                "steps": steps,
                "receives": receives,
                "seconds": round(monotonic() - started, 1),
                "processor_seconds": round(seconds, 1),
                "reached": dict(reached.most_common()),
            }
    found = {
        "steps": sum(parts[part]["steps"] for part in SHARES),
        "first": chosen.first,
        "seconds": round(monotonic() - began, 1),
        "parts": parts,
        "violations": violations,
    }
    report(found, chosen.output, sound=not violations)


if __name__ == "__main__":
    main()
