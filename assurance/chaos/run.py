"""Rounds through a failing network: `python -m assurance.chaos.run`. Each must end in the exact sum of its survivors."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from assurance.chaos.proxy import Fault, Proxy
from assurance.chaos.rounds import Federation, Played
from assurance.reports import report
from tests.support.serving import Process

MEMBERS, ABREAST = 6, 8
"""Members of a round, and parallel rounds. Each round has its own federation and proxy; all share one coordinator."""


async def play(
    process: Process, folder: Path, seed: int, rate: float, *, members: int = MEMBERS, second_s: float = 1.0
) -> tuple[Played, Proxy]:
    """Play one round with a seed. Raises as `Federation.round`."""
    (where := folder / str(seed)).mkdir()
    async with Proxy(process.port, seed, rate, second_s).running() as proxy:
        federation = Federation(f"http://127.0.0.1:{process.port}", proxy, where, seed, members)
        try:
            return await federation.round(), proxy
        finally:
            federation.close()


async def campaign(rounds: int, first_seed: int, rate: float, abreast: int, limit_s: float) -> dict[str, Any]:
    """Play this many rounds with successive seeds, or as many as the time allows."""
    begun, faults = time.monotonic(), list[str]()
    done, requests, played = Counter[Fault](), 0, list[Played]()
    seeds = iter(range(first_seed, first_seed + rounds))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = Process(folder / "data")
        await process.start()

        async def lane() -> None:
            nonlocal requests
            for seed in seeds:
                if time.monotonic() - begun > limit_s:
                    return
                try:
                    outcome, proxy = await play(process, folder, seed, rate)
                except Exception as error:  # noqa: BLE001 - reported with its seed
                    faults.append(f"seed {seed}: {type(error).__name__}: {error}")
                    continue
                sys.stderr.write(f"seed {seed}: {len(outcome.summed)} in the sum\n")
                played.append(outcome)
                requests += proxy.passed
                done.update(proxy.done)

        try:
            await asyncio.gather(*(lane() for _ in range(abreast)))
        finally:
            await process.close()
        log = (folder / "log").read_text()
    return {
        "rounds": len(played),
        "members_each": MEMBERS,
        "exact_sums": len(played),
        "of_everybody": sum(len(each.summed) == MEMBERS for each in played),
        "with_a_member_killed_while_it_enrols": sum(bool(each.halted) for each in played),
        "with_a_member_killed_and_started_again": sum(bool(each.restarted) for each in played),
        "with_a_member_gone_for_good": sum(bool(each.gone) for each in played),
        "requests": requests,
        "faults_done": {fault.value: done[fault] for fault in Fault},
        "answers_500": log.count('"status": 500'),
        "faults": faults,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.3, help="share of requests that something happens to")
    parser.add_argument(
        "--abreast", type=int, default=ABREAST, help="fewer on a busy machine: windows are short"
    )
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    found = asyncio.run(
        campaign(chosen.rounds, chosen.first_seed, chosen.rate, chosen.abreast, chosen.limit_s)
    )
    report(found, chosen.output, sound=not found["faults"] and not found["answers_500"])


if __name__ == "__main__":
    main()
