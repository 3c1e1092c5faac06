"""Kill a coordinator at every durable write: `python -m tests.kill.run`. The same head must come out, and nothing acknowledged be lost.

On SQLite and files the killed process is started again; on PostgreSQL and S3 another replica goes on.
"""

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kill.harness import Outcome, Replica, play
from tests.service.servers import CREDENTIALS, Servers, bucket_served
from tests.service.serving import TOKEN

PAIRS = ("embedded", "servers")
_folders = itertools.count()


@contextmanager
def replicas_of(
    pair: str, servers: Servers | None, folder: Path, die_at: int | None
) -> Iterator[list[Replica]]:
    """One process on files, or two on servers, the first of which dies; all killed at the end."""
    where = folder / str(next(_folders))
    where.mkdir()
    stores = asyncio.run(servers.settings(where)) if servers is not None else {}
    with replicas_on(stores, where, 1 if pair == "embedded" else 2) as found:
        found[0].die_at = die_at
        yield found


@contextmanager
def replicas_on(stores: Mapping[str, Any], where: Path, count: int) -> Iterator[list[Replica]]:
    """Processes still to be started on the same stores; all killed at the end."""
    values = {"operator_token": TOKEN, "resume_grace_s": 0.0, "coordinator_key": "5e" * 32, **stores}
    found = [
        Replica({**values, "data_dir": where / str(number)}, CREDENTIALS, where / f"points-{number}")
        for number in range(count)
    ]
    try:
        yield found
    finally:
        for replica in found:
            replica.kill()


def points_of(pair: str, servers: Servers | None, folder: Path) -> tuple[list[str], Outcome]:
    """Every point that a replica passes where none dies, and what comes out."""
    with replicas_of(pair, servers, folder, None) as replicas:
        outcome = asyncio.run(play(replicas))
        return replicas[0].log.read_text().splitlines(), outcome


def kill_at(pair: str, servers: Servers | None, folder: Path, point: int) -> Outcome:
    """What comes out where it dies at this point."""
    with replicas_of(pair, servers, folder, point) as replicas:
        return asyncio.run(play(replicas))


def campaign(pair: str, servers: Servers | None, folder: Path, every: int, limit_s: float) -> dict[str, Any]:
    """The first point of each label, then every `every`-th, until the time is over."""
    begun = time.monotonic()
    labels, expected = points_of(pair, servers, folder)
    first = [labels.index(label) for label in sorted(set(labels))]
    killed: Counter[str] = Counter()
    faults: list[str] = []
    unreached = 0
    for point in dict.fromkeys((*first, *range(0, len(labels), every))):
        if time.monotonic() - begun > limit_s:
            break
        named = f"point {point} ({labels[point]})"
        sys.stderr.write(f"{pair}: {named}\n")
        try:
            outcome = kill_at(pair, servers, folder, point)
        except AssertionError as error:
            faults.append(f"{named}: {error}")
            continue
        killed[labels[point]] += outcome.died
        unreached += not outcome.died
        if (outcome.weights, outcome.sums) != (expected.weights, expected.sums):
            faults.append(f"{named}: another head")
        if outcome.lost:
            faults.append(f"{named}: {', '.join(outcome.lost)} lost")
        if outcome.left:
            faults.append(f"{named}: {', '.join(outcome.left)} left")
    return {
        "points_of_one_round": len(labels),
        "killed": sum(killed.values()),
        "killed_by_label": dict(killed),
        "point_not_reached": unreached,
        "faults": faults,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for each pair of stores")
    parser.add_argument("--pair", choices=PAIRS, action="append")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    os.environ.update(CREDENTIALS)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, bucket_served() as endpoint:
        for pair in chosen.pair or PAIRS:
            servers = Servers(endpoint) if pair == "servers" else None
            try:
                found[pair] = campaign(pair, servers, Path(folder), chosen.every, chosen.limit_s)
            finally:
                if servers is not None:
                    asyncio.run(servers.drop())
    text = json.dumps(found, indent=2)
    print(text)  # noqa: T201
    if chosen.output:
        chosen.output.parent.mkdir(exist_ok=True)
        chosen.output.write_text(text + "\n")
    if any(each["faults"] for each in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
