"""Check that nothing is acknowledged before it is on disk: `python -m assurance.durability.run`.

A coordinator's process plays a round under strace. Its calls are replayed on a disk that forgets unsynced data. When a 2xx answer to a
message that is sent only once leaves, a coordinator started on what a power cut would leave then must know what was acknowledged.
"""

import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from assurance.durability.trace import Answer, Replay, command
from assurance.reports import arguments, report
from service.telemetry import logs
from tests.support.party import Party
from tests.support.serving import Process, Server, running
from veilsum.protocol.messages import Ciphertexts

ACKNOWLEDGED = re.compile(
    r"/v1/(?:federations/[0-9a-f]+/(?:roster|studies/[0-9a-f]+)|cohorts/[0-9a-f]+/(?:cards|pairings)/[^/]+"
    r"|rounds/[0-9a-f]+/(?:uploads/[^/]+(?:/chunks/\d+)?|answers))"
)
"""Requests that are sent only once: roster, study, cards, pairings, announcements, chunks, answers."""
SHOWN_AT = re.compile(r"^.*?(?=/cards/|/pairings/|/answers$|/chunks/|$)")
"""Prefix of a request's path at which its effect can be seen afterwards."""
CARELESS = ("fsync", "fdatasync", "folders")
MEMBERS = 4
SEEDS = 3
"""How often power cuts keep some of what is not synced."""


@dataclass(frozen=True)
class Cut:
    """A power cut just before an answer left: the answer, and the folder that the cut leaves."""

    answer: Answer
    folder: Path


async def record(folder: Path) -> Path:
    """Play a round under strace; return the file of its calls, next to the folder `data`."""
    trace = folder / "trace"
    (folder / "data").mkdir(mode=0o700)
    party = Party(tuple(f"m-{index}" for index in range(MEMBERS)))
    # uvloop reads and writes sockets like files; asyncio's calls can be told apart.
    environment = {"VEILSUM_RESUME_GRACE_S": "0", "UVICORN_LOOP": "asyncio"}
    process = Process(folder / "data", environment, command(trace))
    server: Any = process
    try:
        await process.start()
        round_id = await party.begun(server)
        view = await party.play(server, round_id)
        assert view["state"] == "done", view
    finally:
        await process.close()
    return trace


def cuts(
    trace: Path, root: Path, into: Path, *, every: int = 1, chance: Random | None = None, deaf: str = ""
) -> list[Cut]:
    """Return every n-th acknowledging answer, each with what a power cut leaves."""
    into.mkdir()
    replay, found, number = Replay(root, frozenset({deaf})), list[Cut](), 0
    for answer in replay.run(trace):
        if answer.method in {"PUT", "POST"} and answer.status < 300 and ACKNOWLEDGED.fullmatch(answer.path):
            if number % every == 0:
                found.append(Cut(answer, replay.disk.materialise(into / str(number), chance)))
            number += 1
    return found


async def forgotten(cut: Cut) -> str | None:
    """Return what a coordinator that starts on the folder has forgotten; None if nothing."""
    try:
        async with running(cut.folder) as server:
            [path] = SHOWN_AT.findall(cut.answer.path)
            now = await server.client.get(path)
            gone = now.status_code != 200
            if "/uploads/" in path:
                _, chunk, index = cut.answer.path.partition("/chunks/")
                missing = now.json()["missing"]
                gone = gone or (int(index) in missing if chunk else cut.answer.body != now.content)
            elif "/rounds/" in path:
                gone = gone or now.json()["version"] < cut.answer.version
            elif "/cohorts/" in path:
                gone = gone or not await _remembers(server, cut.answer, now.json())
            return f"{cut.answer.method} {cut.answer.path}: {now.text[:200]}" if gone else None
    except Exception as error:  # noqa: BLE001 - it doesn't even start
        return f"{cut.answer.method} {cut.answer.path}: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(cut.folder, ignore_errors=True)  # it continues a deletion that was interrupted


async def _remembers(server: Server, answer: Answer, view: dict[str, Any]) -> bool:
    """Return whether a cohort has a member's card or pairing, and shows the member what it was shown in answer to it."""
    path = answer.path.partition("?")[0]
    where, _, member = path.rpartition("/")
    cohort, _, what = where.rpartition("/")
    if member not in view[{"cards": "cards", "pairings": "paired"}[what]]:
        return False
    if answer.body.startswith(b"{"):  # the cohort, before there was more to show
        return True
    params = {}
    if what == "pairings":
        params["manifest"] = Ciphertexts.from_bytes(answer.body).manifest.hex()
    shown = await server.client.get(f"{cohort}/manifest/{member}" if what == "cards" else path, params=params)
    return shown.content == answer.body


async def lost(found: Sequence[Cut]) -> list[str]:
    """Return what is forgotten after all these cuts."""
    return [text for cut in found if (text := await forgotten(cut)) is not None]


async def campaign(folder: Path) -> dict[str, Any]:
    """Record a round, check its power cuts, then repeat the check with each kind of sync left out."""
    begun = time.monotonic()
    trace = await record(folder)
    found = cuts(trace, folder / "data", folder / "cuts")
    by_kind = Counter(
        re.sub(r"/[0-9a-f]{16,}|/m-\d+|/\d+", "/…", cut.answer.path.partition("?")[0]) for cut in found
    )
    faults, acknowledged = await lost(found), len(found)
    torn = 0
    for seed in range(SEEDS):
        some = cuts(trace, folder / "data", folder / f"torn-{seed}", every=5, chance=Random(seed))
        torn += len(some)
        faults += await lost(some)
    controls = {}
    for sync in CARELESS:
        careless = cuts(trace, folder / "data", folder / sync, every=5, deaf=sync)
        controls[f"without_{sync}"] = {"answers": len(careless), "lost": len(await lost(careless))}
    return {
        "answers_of_2xx": acknowledged,
        "by_route": dict(by_kind),
        "power_cuts_that_keep_nothing_unsynced": acknowledged,
        "power_cuts_that_keep_some": torn,
        "faults": faults,
        "controls": controls,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    chosen = arguments(__doc__).parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is needed: apt-get install strace")
    logs.configure_logs(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(campaign(Path(folder)))
    report(
        found,
        chosen.output,
        sound=not found["faults"] and all(each["lost"] for each in found["controls"].values()),
    )


if __name__ == "__main__":
    main()
