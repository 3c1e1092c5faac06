"""The coordinator's memory over a whole round, by the number of members: two accumulators and 200 MB at the most, however many there are.

A coordinator in a process of its own, on SQLite and files, takes real masked uploads over HTTP, adds them up, unmasks, solves and signs. What is
measured is its greatest resident memory above what it had when the round was opened. The sum that it publishes is held against the plain one.

    .venv/bin/python -m benchmarks.coordinator_memory --output runs/coordinator_memory.json
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load

from assurance.kill.harness import Replica
from benchmarks.founding import question_of
from benchmarks.secure_sum import ROOT
from tests.service.driver import Party
from tests.service.serving import TOKEN, Clock, Server
from tests.service.signing import Everybody

MEMBERS = (20, 60)
DIM, CLASSES, RING_BITS = 1712, 100, 48
"""1,637,628 elements: 9.8 MB of a member."""
ALLOWANCE_BYTES = 200_000_000
LIMIT_S = 900.0


def resident(pid: int, field: str) -> int:
    """Bytes of a process by `/proc`: VmRSS now, VmHWM the most since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    [line] = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


async def measured(members: int, folder: Path) -> dict[str, Any]:
    """One round of so many members."""
    values = {"operator_token": TOKEN, "resume_grace_s": 0.0, "data_dir": folder / "data"}
    replica = Replica(values, {}, folder / "points")
    await replica.start()
    try:
        address = f"http://127.0.0.1:{replica.port}"
        async with httpx.AsyncClient(
            base_url=address, timeout=LIMIT_S, auth=Everybody(Clock(), TOKEN)
        ) as client:
            question = question_of(members, DIM, CLASSES, RING_BITS)
            ids = tuple(f"m-{index:03}" for index in range(members))
            party = Party(ids, dim=DIM, classes=CLASSES, question=question)
            return await played(party, Server(folder, None, client, Clock()), replica.process.pid)
    finally:
        replica.kill()


async def played(party: Party, server: Server, pid: int) -> dict[str, Any]:
    """The coordinator's memory while uploads come in, and until the end."""
    await party.begin(server)
    round_id = await party.open_round(server)
    before, begun = resident(pid, "VmRSS"), time.monotonic()
    forget_peak(pid)
    upload_bytes = 0
    for member in party.ids:
        await party.serve(server, round_id, member)
        upload_bytes = sum(map(len, party.chunks.pop(member)))
    collected = resident(pid, "VmHWM")
    while not (view := await server.view(round_id))["ended"]:
        for member in party.ids:
            await party.serve(server, round_id, member)
        if time.monotonic() - begun > LIMIT_S:
            raise SystemExit(f"the round of {len(party.ids)} is still {view['state']} after {LIMIT_S:.0f} s")
    if view["state"] != "done":
        raise SystemExit(f"the round of {len(party.ids)} has {view['state']}: {view['fault']}")
    peak, elements = resident(pid, "VmHWM"), party.content.question.elements
    bound = 2 * 8 * elements + ALLOWANCE_BYTES
    return {
        "members": len(party.ids),
        "elements": elements,
        "upload_bytes": upload_bytes,
        "seconds": round(time.monotonic() - begun, 1),
        "resident_before_bytes": before,
        "while_uploads_come_in_bytes": collected - before,
        "whole_round_bytes": peak - before,
        "bound_bytes": bound,
        "within": peak - before <= bound,
        "exact": await is_exact(party, server, view),
    }


async def is_exact(party: Party, server: Server, view: dict[str, Any]) -> bool:
    """Whether the sum that is published is that of everybody's vectors."""
    sums = (await server.client.get(f"/v1/rounds/{view['round']}/result/sums")).content
    plain = np.sum(list(party.vectors[view["context"]].values()), axis=0)
    return bool(np.array_equal(load(sums)["sum"], plain))


def table_of(rounds: list[dict[str, Any]]) -> Table:
    table = Table(
        "members", "upload MB", "while uploads come in MB", "whole round MB", "bound MB", "s", "exact"
    )
    for row in rounds:
        table.add_row(
            str(row["members"]),
            *(
                f"{row[name] / 1e6:,.1f}"
                for name in (
                    "upload_bytes",
                    "while_uploads_come_in_bytes",
                    "whole_round_bytes",
                    "bound_bytes",
                )
            ),
            f"{row['seconds']:,.0f}",
            str(row["exact"]),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/coordinator_memory.json")
    parser.add_argument("--members", type=int, action="append", help="instead of 20 and 60")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    rounds = []
    for members in given.members or MEMBERS:
        with tempfile.TemporaryDirectory(prefix="veilsum-memory-") as folder:
            rounds.append(asyncio.run(measured(members, Path(folder))))
    console.print(table_of(rounds))
    written = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": os.getloadavg(),
        "rounds": rounds,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {given.output}")
    if not all(row["within"] and row["exact"] for row in rounds):
        sys.exit("coordinator_memory: a round is beyond its bound, or its sum is not exact")


if __name__ == "__main__":
    main()
