"""Load on a coordinator: a round of many real members from few processes, with control calls at a steady rate.

    enrol ──▶ open ──▶ all members mask, and wait ──▶ control calls alone ──▶ all upload at once, with control calls ──▶ the result

Members wait before they announce, so that from then on the coordinator's work is measured, and not their masking.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crews import crew, hear, tell
from benchmarks.founding import Founded, found, question_of, random_records
from client_sdk import AsyncMember, Identity
from client_sdk.api import CoordinatorApi
from client_sdk.effects import Request, Response, Unreached
from client_sdk.environment import THIS_MACHINE
from client_sdk.errors import ClientError, PeerFault
from client_sdk.operator import Operator
from client_sdk.progress import Reporter
from client_sdk.retry import RetryingClient
from client_sdk.signing import Signer
from client_sdk.transport import AsyncDriver

CLASSES = 10
RING_BITS = 48
PATIENCE_S = 900.0
POLL_S = 0.2
Told = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """The load on a coordinator.

    Attributes:
        url: the coordinator's address.
        token: the operator's.
        members: of the round, at least four.
        upload_bytes: of each member's vector, rounded up to a whole number of features.
        processes: number of processes for the members.
        calls_per_s: rate of signed control calls.
        alone_s: seconds of control calls before the uploads.
    """

    url: str
    token: str
    members: int
    upload_bytes: int
    processes: int
    calls_per_s: int
    alone_s: float = 5.0

    @property
    def dim(self) -> int:
        """The smallest number of features whose sums, l (l + 1) / 2 + l C + C elements, are at least that long."""
        elements = self.upload_bytes * 8 / RING_BITS - CLASSES
        half = CLASSES + 0.5
        return max(1, math.ceil(math.sqrt(half * half + 2 * elements) - half))


def run(load: Load, folder: Path, told: Told) -> dict[str, Any]:
    """Put the load on the coordinator, which keeps its federation afterwards.

    Args:
        load: the load.
        folder: for the members' identities and uploads; empty.
        told: called with progress.

    Returns:
        The measured bytes, seconds, and milliseconds of control calls.

    Raises:
        ClientError: if a process of members failed, with its reason.
        PeerFault: if the coordinator refused.
    """
    ids = tuple(f"load-{index}" for index in range(load.members))
    with Operator(load.url, load.token) as operator, contextlib.ExitStack() as ending:
        founded = found(operator, folder, ids, question_of(load.members, load.dim, CLASSES, RING_BITS))
        cohort = founded.open_cohort(operator)
        told(f"{load.members} members in {load.processes} processes enrol")
        crews = [
            ending.enter_context(
                crew(_crew_s_round, load, folder, ids[number :: load.processes], founded, cohort)
            )
            for number in range(min(load.processes, load.members))
        ]
        hear(crews, "enrolled")
        round_id = operator.open_round(cohort).round
        told(f"round {round_id}: everybody masks {load.dim} features")
        tell(crews, round_id)
        hear(crews, "masked")
        return _measured(load, folder, ids, operator, crews, round_id, told)


def _measured(
    load: Load,
    folder: Path,
    ids: Sequence[str],
    operator: Operator,
    crews: Sequence[Connection],
    round_id: str,
    told: Told,
) -> dict[str, Any]:
    told(f"{load.calls_per_s} control calls a second, then beside the uploads")
    with crew(_steady, load, folder, tuple(ids), round_id) as caller:
        hear([caller], "calling")
        time.sleep(load.alone_s)
        begun_s = time.time()
        tell(crews, "go")
        while len((view := operator.round(round_id)).uploaded) < load.members and not view.ended:
            time.sleep(POLL_S)
        uploaded_s = time.time()
        tell([caller], "stop")
        calls: list[tuple[float, float]] = hear([caller], "called")[0]
    counted = sum(hear(crews, "ended"))
    dim, classes = load.dim, CLASSES
    elements = dim * (dim + 1) // 2 + dim * classes + classes
    total = load.members * elements * RING_BITS // 8
    return {
        "round": round_id,
        "state": operator.round(round_id).state,
        "members": load.members,
        "counted": counted,
        "bytes_each": total // load.members,
        "bytes": total,
        "upload_seconds": round(uploaded_s - begun_s, 3),
        "bytes_per_s": round(total / (uploaded_s - begun_s)),
        "round_seconds": round(time.time() - begun_s, 3),
        "calls_per_s": load.calls_per_s,
        "calls_alone": _spread([ms for at_s, ms in calls if at_s < begun_s]),
        "calls_beside_uploads": _spread([ms for at_s, ms in calls if at_s >= begun_s]),
    }


def _spread(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the number of calls, and their median and 99th percentile; a failed call counts as infinite."""
    if not milliseconds:
        return {"calls": 0}
    half, most = np.quantile(np.minimum(milliseconds, 1e9), [0.5, 0.99])
    failed = sum(math.isinf(each) for each in milliseconds)
    return {
        "calls": len(milliseconds),
        "failed": failed,
        "p50_ms": round(float(half), 1),
        "p99_ms": round(float(most), 1),
    }


# Processes of members


class _Held(AsyncDriver):
    """A member's driver that waits, after masking, before it announces the upload."""

    def __init__(self, load: Load, arrived: Callable[[], None], gate: asyncio.Event) -> None:
        super().__init__(load.url)
        self._arrived, self._gate = arrived, gate

    async def _send_request(self, request: Request) -> Response | Unreached:
        if request.method == "PUT" and "/uploads/" in request.path and not self._gate.is_set():
            self._arrived()
            await self._gate.wait()
        return await super()._send_request(request)


async def _crew_s_round(
    load: Load, folder: Path, ids: Sequence[str], founded: Founded, cohort: str, parent: Connection
) -> None:
    gate, masked = asyncio.Event(), asyncio.Semaphore(0)
    async with contextlib.AsyncExitStack() as ending:
        members = [
            await ending.enter_async_context(
                AsyncMember(
                    load.url,
                    Identity.load(folder / member),
                    founded.policy,
                    patience_s=PATIENCE_S,
                    driver=_Held(load, masked.release, gate),
                )
            )
            for member in ids
        ]
        await asyncio.gather(
            *(
                member.enrol(cohort, random_records(founded.question, number))
                for number, member in enumerate(members)
            )
        )
        parent.send(("enrolled", None))
        round_id = await asyncio.to_thread(parent.recv)
        rounds = asyncio.gather(*(member.contribute(round_id) for member in members))
        everybody = asyncio.ensure_future(_all(masked, len(members)))
        both: tuple[asyncio.Future[Any], ...] = (rounds, everybody)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if rounds.done():
            rounds.result()
        parent.send(("masked", None))
        await asyncio.to_thread(parent.recv)
        gate.set()
        results = await rounds
        parent.send(("ended", sum(result.counted for result in results)))


async def _all(masked: asyncio.Semaphore, count: int) -> None:
    for _ in range(count):
        await masked.acquire()


# Control calls


async def _steady(load: Load, folder: Path, ids: Sequence[str], round_id: str, parent: Connection) -> None:
    """Call until told to stop. Report when each call was due, and the milliseconds from then to its answer, so delays count."""
    driver = AsyncDriver(load.url)
    asked = [_asker(member, Identity.load(folder / member)) for member in ids]
    found: list[tuple[float, float]] = []

    async def call(number: int, due_s: float) -> None:
        member, coordinator = asked[number % len(asked)]
        try:
            await driver.run(coordinator.fetch_request(round_id, member))
        except (PeerFault, ClientError):
            found.append((due_s, math.inf))
        else:
            found.append((due_s, (time.time() - due_s) * 1000))

    parent.send(("calling", None))
    stop = asyncio.create_task(asyncio.to_thread(parent.recv))
    begun_s, number = time.time(), 0
    async with asyncio.TaskGroup() as group:
        while not stop.done():
            due_s = begun_s + number / load.calls_per_s
            await asyncio.sleep(max(0.0, due_s - time.time()))
            group.create_task(call(number, due_s))
            number += 1
    await driver.close()
    parent.send(("called", found))


def _asker(member: str, identity: Identity) -> tuple[str, CoordinatorApi]:
    signer = Signer(member, identity.key, THIS_MACHINE)
    return member, CoordinatorApi(RetryingClient(PATIENCE_S, THIS_MACHINE, Reporter(None), signer))
