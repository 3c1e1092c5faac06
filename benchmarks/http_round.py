"""A whole round over HTTP compared with the same members' sums in the clear, phase by phase, in one run.

A coordinator process and two processes with real members. Each turn plays a masked round at each width, enrolment included. Then the
same number of members sum the same rows and upload V, U and counts as plain float32 to the same coordinator, which stores them as
durably, adds them up and solves: once with V's triangle, as many numbers as in a round, which decides the promises, and once with all of V.
Processes start before any clock runs. The ratio of the two can be compared with other machines; the times can't.

    .venv/bin/python -m benchmarks.http_round --members 10 --dim 256 --repeats 1
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crews import crew, hear, tell
from benchmarks.founding import Founded, found, question_of, random_records
from benchmarks.plain_sums import CHUNK, ELEMENT, RESULT, SUM, PlainRequest
from benchmarks.serving import TOKEN, Served, coordinator
from client_sdk import AsyncMember, Identity, Records
from client_sdk.effects import Flow, Request, Response, together
from client_sdk.environment import THIS_MACHINE
from client_sdk.operator import Operator
from client_sdk.progress import Reporter
from client_sdk.retry import RetryingClient
from client_sdk.signing import Signer, Token
from client_sdk.transport import AsyncDriver
from veilsum.calibration import FFCStatistics
from veilsum.protocol.round_spec import CHUNK_ELEMENTS

BOUNDS = {48: (3.0, 2.8), 32: (2.5, 2.4)}
"""Limits of a round's wall time and processor time, in multiples of the same sums in the clear, by the ring's bits."""
COORDINATOR = 3.0
"""Limit of the coordinator's processor time, in the same multiples."""
PHASES = ("enrol", "upload", "freeze", "unmask", "solve", "result")
STATES = {
    "collecting": "upload",
    "checking": "freeze",
    "freezing": "freeze",
    "revealing": "unmask",
    "recovered": "solve",
}
PATIENCE_S, LANES = 900.0, 4


@dataclass(frozen=True)
class Plan:
    """What to play: size, number of members and of processes."""

    members: int
    dim: int
    classes: int
    processes: int

    whole: bool = False
    """Whether sums in the clear send the whole of V."""

    @property
    def plain(self) -> PlainRequest:
        """The request for the same sums in the clear."""
        return PlainRequest(dim=self.dim, classes=self.classes, members=self.members, whole=self.whole)


@dataclass
class Turn:
    """One round, or one sum in the clear.

    Attributes:
        seconds: by phase.
        member_cpu_s: processor seconds of all members together.
        coordinator_cpu_s: the coordinator's processor seconds.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    member_cpu_s: float = 0.0
    coordinator_cpu_s: float = 0.0

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def cpu_s(self) -> float:
        return self.member_cpu_s + self.coordinator_cpu_s


# One process of members


def records_of(founded: Founded, ids: Sequence[str]) -> dict[str, Records]:
    """Return each member's records."""
    return {member: random_records(founded.question, int(member.rpartition("-")[2])) for member in ids}


async def masked(
    plan: Plan, url: str, folder: Path, ids: Sequence[str], founded: Founded, parent: Connection
) -> None:
    """Enrol, and take part in a round until its result is verified."""
    del plan
    ready = records_of(founded, ids)
    async with AsyncExitStack() as ending:
        members = [
            await ending.enter_async_context(
                AsyncMember(url, Identity.load(folder / each), founded.policy, patience_s=PATIENCE_S)
            )
            for each in ids
        ]
        parent.send(("ready", None))
        cohort, begun_s = await asyncio.to_thread(parent.recv), time.process_time()
        parts = zip(members, ready.values(), strict=True)
        await asyncio.gather(*(member.enrol(cohort, records) for member, records in parts))
        parent.send(("enrolled", None))
        round_id = await asyncio.to_thread(parent.recv)
        await asyncio.gather(*(member.contribute(round_id) for member in members))
        parent.send(("ended", time.process_time() - begun_s))


async def plain(
    plan: Plan, url: str, folder: Path, ids: Sequence[str], founded: Founded, parent: Connection
) -> None:
    """Send the statistics in the clear, and fetch the weights."""
    layout = plan.plain.layout
    drivers = {member: AsyncDriver(url) for member in ids}

    def sent(member: str, records: Records) -> Flow[None]:
        signer = Signer(member, Identity.load(folder / member).key, THIS_MACHINE)
        caller = RetryingClient(PATIENCE_S, THIS_MACHINE, Reporter(None), signer)
        numbers = FFCStatistics(plan.dim, plan.classes, normalise=True)
        numbers.update(records.features, records.labels)
        blocks = {"V": numbers.V, "U": numbers.U, "n": numbers.counts.astype(np.float64)}
        flat = layout.flatten(blocks).astype(ELEMENT)
        yield from together([chunk(caller, member, index, flat) for index in range(plan.plain.chunks)], LANES)
        yield from caller.send_with_retries(
            Request("GET", RESULT.format(federation=founded.federation), wait_s=PATIENCE_S)
        )

    def chunk(caller: RetryingClient, member: str, index: int, flat: Any) -> Flow[Response]:
        path = CHUNK.format(federation=founded.federation, member=member, index=index)
        body = flat[index * CHUNK_ELEMENTS : (index + 1) * CHUNK_ELEMENTS].tobytes()
        return caller.send_with_retries(Request("PUT", path, body))

    ready = records_of(founded, ids)
    parent.send(("ready", None))
    await asyncio.to_thread(parent.recv)
    begun_s = time.process_time()
    await asyncio.gather(*(drivers[member].run(sent(member, each)) for member, each in ready.items()))
    parent.send(("ended", time.process_time() - begun_s))
    for driver in drivers.values():
        await driver.close()


# The operator


@contextmanager
def federation(
    plan: Plan, served: Served, work: Callable[..., Any], question: dict[str, Any]
) -> Iterator[tuple[Operator, Founded, list[Connection]]]:
    """Yield a new federation, with its members ready in their processes."""
    ids = [f"m-{index:03}" for index in range(plan.members)]
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="veilsum-round-")))
        operator = ending.enter_context(Operator(served.url, TOKEN, patience_s=PATIENCE_S))
        founded = found(operator, folder, ids, question)
        crews = [
            ending.enter_context(crew(work, plan, served.url, folder, ids[number :: plan.processes], founded))
            for number in range(plan.processes)
        ]
        hear(crews, "ready")
        yield operator, founded, crews


def masked_turn(plan: Plan, served: Served, bits: int) -> Turn:
    """Play a cohort's first round."""
    turn, question = Turn(), question_of(plan.members, plan.dim, plan.classes, bits)
    with federation(plan, served, masked, question) as (operator, founded, crews):
        cpu_s, begun_s = served.cpu_s, time.perf_counter()
        tell(crews, cohort := founded.open_cohort(operator))
        hear(crews, "enrolled")
        enrolled_s = time.perf_counter()
        round_id = operator.open_round(cohort).round
        tell(crews, round_id)
        turn.member_cpu_s = sum(hear(crews, "ended"))
        ended_s = time.perf_counter()
        turn.coordinator_cpu_s = served.cpu_s - cpu_s
        view = operator.round(round_id)
        if view.state != "done" or len(view.survivors) != plan.members:
            raise SystemExit(f"the round is {view.state}, with {len(view.survivors)} members")
        for state, seconds in view.phase_seconds.items():
            turn.seconds[STATES[state]] += seconds
    turn.seconds["enrol"] = enrolled_s - begun_s
    turn.seconds["result"] = ended_s - begun_s - turn.total_s
    return turn


def plain_turn(plan: Plan, served: Served) -> Turn:
    """Play the same members' sum in the clear, which needs no keys and no enrolment."""
    turn, question = Turn(), question_of(plan.members, plan.dim, plan.classes)
    with federation(plan, served, plain, question) as (_, founded, crews):
        path = SUM.format(federation=founded.federation)
        cpu_s, begun_s = served.cpu_s, time.perf_counter()
        _asked(served, Request("POST", path, plan.plain.model_dump_json().encode(), "application/json"))
        tell(crews, "go")
        turn.member_cpu_s = sum(hear(crews, "ended"))
        ended_s = time.perf_counter()
        turn.coordinator_cpu_s = served.cpu_s - cpu_s
        seconds = json.loads(_asked(served, Request("GET", path)).body)
    turn.seconds["upload"], turn.seconds["solve"] = seconds["collecting"], seconds["solving"]
    turn.seconds["result"] = ended_s - begun_s - turn.total_s
    return turn


def _asked(served: Served, request: Request) -> Response:
    async def asked() -> Response:
        driver = AsyncDriver(served.url)
        try:
            return await driver.run(
                RetryingClient(PATIENCE_S, THIS_MACHINE, Reporter(None), Token(TOKEN)).send_with_retries(
                    request
                )
            )
        finally:
            await driver.close()

    return asyncio.run(asked())


# What came out


def median(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the median of each figure over several turns."""
    return {
        "total_s": round(statistics.median(turn.total_s for turn in turns), 3),
        "seconds": {
            phase: round(statistics.median(turn.seconds[phase] for turn in turns), 3) for phase in PHASES
        },
        "member_cpu_s": round(statistics.median(turn.member_cpu_s for turn in turns), 2),
        "coordinator_cpu_s": round(statistics.median(turn.coordinator_cpu_s for turn in turns), 2),
    }


def measured(plan: Plan, repeats: int, widths: Sequence[int]) -> dict[str, Any]:
    """Play every turn, and judge the promises."""
    clear, whole = list[Turn](), list[Turn]()
    rounds: dict[int, list[Turn]] = {bits: [] for bits in widths}
    with (
        tempfile.TemporaryDirectory(prefix="veilsum-round-") as folder,
        coordinator(Path(folder), "benchmarks.plain_sums") as served,
    ):
        for _ in range(repeats):
            clear.append(plain_turn(plan, served))
            whole.append(plain_turn(replace(plan, whole=True), served))
            for bits in widths:
                rounds[bits].append(masked_turn(plan, served, bits))
    base = statistics.median(turn.total_s for turn in clear)
    base_whole = statistics.median(turn.total_s for turn in whole)
    base_cpu = statistics.median(turn.cpu_s for turn in clear)
    base_coordinator = statistics.median(turn.coordinator_cpu_s for turn in clear)
    promises: list[dict[str, Any]] = [
        {
            "promise": f"a round at {bits} bits beside the same sums in the clear",
            "ratio": round(statistics.median(turn.total_s for turn in turns) / base, 2),
            "ratio_without_enrolment": round(
                statistics.median(turn.total_s - turn.seconds["enrol"] for turn in turns) / base, 2
            ),
            "ratio_to_the_whole_of_v": round(
                statistics.median(turn.total_s for turn in turns) / base_whole, 2
            ),
            "processor_ratio": round(statistics.median(turn.cpu_s for turn in turns) / base_cpu, 2),
            "coordinator_ratio": round(
                statistics.median(turn.coordinator_cpu_s for turn in turns) / base_coordinator, 2
            ),
            "at_most": (*BOUNDS[bits], COORDINATOR),
        }
        for bits, turns in rounds.items()
    ]
    for promise in promises:
        ratios = (promise["ratio"], promise["processor_ratio"], promise["coordinator_ratio"])
        promise["kept"] = all(ratio <= most for ratio, most in zip(ratios, promise["at_most"], strict=True))
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        **{key: value for key, value in asdict(plan).items() if key != "whole"},
        "repeats": repeats,
        "in_the_clear": median(clear),
        "in_the_clear_with_the_whole_of_v": median(whole),
        **{f"round_{bits}_bits": median(turns) for bits, turns in rounds.items()},
        "promises": promises,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2, help="that the members share")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bits", type=int, nargs="+", default=list(BOUNDS), choices=tuple(BOUNDS))
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    plan = Plan(chosen.members, chosen.dim, chosen.classes, chosen.processes)
    found = measured(plan, chosen.repeats, chosen.bits)
    text = json.dumps(found, indent=2)
    print(text)
    if chosen.output:
        chosen.output.parent.mkdir(exist_ok=True)
        chosen.output.write_text(text + "\n")
    if not all(promise["kept"] for promise in found["promises"]):
        raise SystemExit("bench-round: a promise is not kept")


if __name__ == "__main__":
    main()
