"""The coordinator's memory over a whole round, by number of members: at most two accumulators and 200 MB, however many members there are.

A coordinator in its own process, on SQLite and files, receives real masked uploads over HTTP, adds, unmasks, solves and signs. The
benchmark measures its peak resident memory above that at the round's opening, and its database's size before and after the round's end.
It compares the published sum with the plain one. Rounds of 20 and of 60 members send 10 MB each. One of 200 sends a small vector
and 2 MB of shares each; its decryptors all fetch their shares at once, slowly. That coordinator may use 300 MB, and 20 MB of database.

    .venv/bin/python -m benchmarks.coordinator_memory --output runs/coordinator_memory.json
"""

import argparse
import asyncio
import os
import platform
import socket
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load

from benchmarks.founding import question_of
from benchmarks.reports import write_findings
from benchmarks.secure_sum import ROOT
from benchmarks.serving import TOKEN, coordinator
from tests.support.clients import Everybody
from tests.support.party import Party
from tests.support.serving import Clock, Server

MEMBERS = (20, 60, 200)
DIM, CLASSES, RING_BITS = 1712, 100, 48
"""A vector of 1,637,628 elements: 9.8 MB from each member."""
CROWD, CROWD_DIM, CROWD_CLASSES = 200, 16, 4
"""From this many members on, vectors are small: members' shares for each other are what grows."""
ALLOWANCE_BYTES, CROWD_BYTES, DATABASE_BYTES = 200_000_000, 300_000_000, 20_000_000
LIMIT_S, SHRINK_S, SLOW_S = 900.0, 60.0, 3.0


def resident(pid: int, field: str) -> int:
    """Return bytes from `/proc`: VmRSS is the current memory, VmHWM the peak since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    [line] = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


async def measured(members: int, folder: Path) -> dict[str, Any]:
    """Measure one round of this many members."""
    dim, classes = (CROWD_DIM, CROWD_CLASSES) if members >= CROWD else (DIM, CLASSES)
    question = question_of(members, dim, classes, RING_BITS)
    if members >= CROWD:
        question["records"] = {"least": 40, "most": 40, "least_per_class": 1, "rows_per_id": 1}
    ids = tuple(f"m-{index:03}" for index in range(members))
    party = Party(ids, dim=dim, classes=classes, question=question)
    with coordinator(folder) as served:
        signing = Everybody(Clock(), TOKEN)
        async with httpx.AsyncClient(base_url=served.url, timeout=LIMIT_S, auth=signing) as client:
            return await played(party, Server(folder, None, client, Clock()), served.pid)


async def played(party: Party, server: Server, pid: int) -> dict[str, Any]:
    """Play a round; return the coordinator's memory during uploads and until the end."""
    round_id = await party.begun(server)
    before, begun = resident(pid, "VmRSS"), time.monotonic()
    forget_peak(pid)
    upload_bytes = 0
    for member in party.ids:
        await party.serve(server, round_id, member)
        upload_bytes = sum(map(len, party.chunks.pop(member)))
    collected = resident(pid, "VmHWM")
    if len(party.ids) >= CROWD:
        await read_slowly(server, round_id, party.ids)
    while not (view := await server.view(round_id))["ended"]:
        for member in party.ids:
            await party.serve(server, round_id, member)
        if time.monotonic() - begun > LIMIT_S:
            raise SystemExit(f"the round of {len(party.ids)} is still {view['state']} after {LIMIT_S:.0f} s")
    if view["state"] != "done":
        raise SystemExit(f"the round of {len(party.ids)} has {view['state']}: {view['fault']}")
    peak, elements = resident(pid, "VmHWM"), party.content.question.elements
    bound = CROWD_BYTES - before if len(party.ids) >= CROWD else 2 * 8 * elements + ALLOWANCE_BYTES
    filled, ended = database_bytes(server.folder), time.monotonic()
    while database_bytes(server.folder) > DATABASE_BYTES and time.monotonic() < ended + SHRINK_S:  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0.1)
    left = database_bytes(server.folder)
    return {
        "members": len(party.ids),
        "elements": elements,
        "upload_bytes": upload_bytes,
        "seconds": round(time.monotonic() - begun, 1),
        "resident_before_bytes": before,
        "while_uploads_come_in_bytes": collected - before,
        "whole_round_bytes": peak - before,
        "bound_bytes": bound,
        "database_full_bytes": filled,
        "database_left_bytes": left,
        "within": peak - before <= bound and left <= DATABASE_BYTES,
        "exact": await is_exact(party, server, view),
    }


async def read_slowly(server: Server, round_id: str, ids: tuple[str, ...]) -> None:
    """Request all decryptors' boxes, and read no more than a small buffer of each until all were requested."""
    await server.until(round_id, "checking")
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)]
    lanes = httpx.AsyncHTTPTransport(socket_options=small, limits=httpx.Limits(max_connections=None))
    signing = Everybody(Clock(), TOKEN)
    async with (
        httpx.AsyncClient(
            base_url=server.client.base_url, transport=lanes, auth=signing, timeout=LIMIT_S
        ) as slow,
        AsyncExitStack() as answers,
    ):
        asked = [
            await answers.enter_async_context(slow.stream("GET", f"/v1/rounds/{round_id}/requests/{member}"))
            for member in ids
        ]
        await asyncio.sleep(SLOW_S)
        sizes = [sum([len(piece) async for piece in answer.aiter_raw()]) for answer in asked[-2:]]
        if {answer.status_code for answer in asked} != {200} or min(sizes) < 1_000_000:
            raise SystemExit(f"the decryptors were not all delivered their boxes: {sizes}")


def database_bytes(folder: Path) -> int:
    """Return the size of the database's file and its write-ahead log."""
    return sum(file.stat().st_size for file in (folder / "data").glob("coordinator.sqlite3*"))


async def is_exact(party: Party, server: Server, view: dict[str, Any]) -> bool:
    """Return whether the published sum is that of all members' vectors."""
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
    write_findings(written, given.output)
    if not all(row["within"] and row["exact"] for row in rounds):
        sys.exit("coordinator_memory: a round is beyond its bound, or its sum is not exact")


if __name__ == "__main__":
    main()
