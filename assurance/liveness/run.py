"""Federations of real processes that are killed, stopped and disconnected: `python -m assurance.liveness.run`.

A coordinator, `veilsum operator run`, and five or six `veilsum member join`, over a network that loses, repeats, reorders, starves and
cuts requests. Every run must end by itself: in the exact sum of its survivors, or, if too many members never come back, without a sum
and with their records accounted for.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from assurance.liveness.world import World
from assurance.reports import arguments, report


async def play(folder: Path, seed: int) -> tuple[World, str]:
    """Play a run with a seed; return it with the rule that it broke, if any."""
    world, broken = World(folder / str(seed), seed), ""
    try:
        await world.play()
    except Exception as error:  # noqa: BLE001 - reported with its seed
        leaves = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        broken = f"seed {seed}: " + "; ".join(f"{type(each).__name__}: {each}" for each in leaves)
    return world, broken


async def campaign(folder: Path, runs: int, first_seed: int, abreast: int) -> dict[str, Any]:
    """Play this many runs with successive seeds."""
    begun, played, faults = time.monotonic(), list[World](), list[str]()
    seeds = iter(range(first_seed, first_seed + runs))

    async def lane() -> None:
        for seed in seeds:
            world, broken = await play(folder, seed)
            played.append(world)
            faults.extend(filter(None, [broken]))
            sys.stderr.write(f"seed {seed}, {world.kind}: {broken or world.ended}, {world.steps}\n")

    await asyncio.gather(*(lane() for _ in range(abreast)))
    return {
        "runs": len(played),
        "by_kind": Counter(world.kind for world in played),
        "ended": Counter(world.ended or "broken" for world in played),
        "attempts_by_end": Counter(step for world in played for step in world.steps),
        "faults_done": sum((world.faults for world in played), Counter[str]()),
        "requests": sum(world.requests for world in played),
        "network_faults_done": sum((world.network for world in played), Counter[str]()),
        "faults": faults,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--abreast", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="kept afterwards, with every log")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.folder or Path(name)
        found = asyncio.run(campaign(folder, chosen.runs, chosen.first_seed, chosen.abreast))
    report(found, chosen.output, sound=not found["faults"])


if __name__ == "__main__":
    main()
