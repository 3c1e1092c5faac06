"""A coordinator process and members of the SDK who answer whatever is asked, over HTTP on this machine."""

import asyncio
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from benchmarks.heads_table.features import Features
from calibration.questions import QUESTIONS
from client_sdk import AsyncMember, Identity, Policy, Records, Result
from client_sdk.asked import terms_mechanism, terms_question
from client_sdk.operator import Operator
from client_sdk.sums import verify_sums
from client_sdk.transport import AsyncDriver
from protocol.rest import CohortRequest, NoiseRequest, RoundRequest
from veilsum.admin import Draft, create_admin
from veilsum.demo.coordinator import HOST, surroundings, wait_until_healthy

T = TypeVar("T")

DELTA = 1e-5
PATIENCE_S = 600.0
MU_BUDGET = 100.0  # all of the table's noisy rounds are over the same records


class Counted(httpx.AsyncHTTPTransport):
    """Counts the bytes of the bodies that a member sends."""

    sent = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += len(await request.aread())
        return await super().handle_async_request(request)


@dataclass(frozen=True, eq=False)
class Held:
    """A finished round.

    Attributes:
        result: as a member verified it, its transcript replayed.
        transcript: SHA-256 of the signed transcript, in hexadecimal.
        sums: the published sum, as integers of the round's lattice.
        upload_bytes: of the bodies that one member sent, the mean over members.
        cpu_s: of all members and the coordinator.
    """

    result: Result
    transcript: str
    sums: npt.NDArray[np.int64]
    upload_bytes: int
    cpu_s: float

    def noisy_sums(self) -> tuple[Any, Any, float]:
        """V̂, Û and σ_V of a noisy round of FFC."""
        attempt = self.result.evidence.attempt
        asked, mechanism = terms_question(attempt, self.result.material), terms_mechanism(attempt)
        assert mechanism is not None
        blocks = asked.layout.unflatten(self.sums)
        deviation = mechanism.deviation("V", len(self.result.summed))
        return mechanism.lattice.decode(blocks["V"], 2), mechanism.lattice.decode(blocks["U"], 1), deviation


class Coordinator:
    """A coordinator's process, by `veilsum serve`; leaving the block ends it.

    Args:
        folder: an empty one, for what it keeps.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.token = folder, secrets.token_urlsafe(32)

    def __enter__(self) -> Self:
        port = _free_port()
        self.url = f"http://{HOST}:{port}"
        settings = surroundings(VEILSUM_DATA_DIR=str(self.folder / "data"), VEILSUM_OPERATOR_TOKEN=self.token)
        serve = [sys.executable, "-m", "veilsum", "serve", "--port", str(port), "--json"]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(serve, env=settings, stdout=log, stderr=log)
        try:
            wait_until_healthy(port, PATIENCE_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    @property
    def cpu_s(self) -> float:
        """CPU seconds that it has taken so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Federation:
    """One cohort of members who hold a set of features, and its operator.

    Args:
        features: that the members hold.
        coordinator: that serves its rounds.
        folder: an empty one, for what admin and members keep.
    """

    def __init__(self, features: Features, coordinator: Coordinator, folder: Path) -> None:
        self.features, self.coordinator, self.folder = features, coordinator, folder
        self.names = tuple(f"member-{number}" for number in range(len(features.members)))

    def __enter__(self) -> Self:
        self.operator = Operator(self.coordinator.url, self.coordinator.token)
        self._runner, self._members = asyncio.Runner(), list[tuple[AsyncMember, Counted]]()
        self._found(self.coordinator.url)
        return self

    def __exit__(self, *ended: object) -> None:
        for member, _ in self._members:
            self._runner.run(member.close())
        self._runner.close()
        self.operator.close()

    def _found(self, url: str) -> None:
        admin = create_admin(self.folder / "admin")
        keys = {name: Identity.create(self.folder / name, name).public.hex() for name in self.names}
        draft = Draft(
            version=1,
            coordinator=self.operator.coordinator().public_key,
            members=keys,
            extractors=[self.features.extractor.hex()],
            withhold=False,  # every class is known to all
        )
        self.operator.publish(draft.sign(admin))
        policy = Policy(admin.public, statistics=frozenset(QUESTIONS), mu_budget=MU_BUDGET)
        for name in self.names:
            transport = Counted(verify=False)
            driver = AsyncDriver(url, transport=transport)
            identity = Identity.load(self.folder / name)
            self._members.append((AsyncMember(url, identity, None, policy, driver=driver), transport))
        request = CohortRequest(records_cap=len(self.features.y))
        self.cohort = self.operator.open_cohort(admin.public.hex(), request).cohort
        self._all(lambda _, member: member.enrol(self.cohort))

    def ask(
        self,
        statistic: str,
        *,
        parameters: dict[str, Any] | None = None,
        rests_on: Held | None = None,
        epsilon: float | None = None,
    ) -> Held:
        """A round, from its opening to a result that every member has verified."""
        began = self._cpu_s()
        request = RoundRequest(
            statistic=statistic,
            dim=self.features.dim,
            classes=self.features.classes,
            extractor=self.features.extractor.hex(),
            parameters=parameters or {},
            rests_on=rests_on.result.record.round if rests_on else None,
            noise=None if epsilon is None else NoiseRequest(epsilon=epsilon, delta=DELTA),
        )
        round_id = self.operator.open_round(self.cohort, request).round

        async def part(number: int, member: AsyncMember) -> Result:
            own = self.features.members[number]
            records = Records(self.features.z[own], self.features.y[own], normalise=True)
            return await member.contribute(round_id, records, lineage="main")

        results, sent = self._all(part)
        cpu_s, content = self._cpu_s() - began, self.operator.sums(round_id)
        verify_sums(results[0], content)
        assert results[0].transcript_file is not None
        return Held(
            results[0],
            hashlib.sha256(results[0].transcript_file).hexdigest(),
            load(content)["sum"],
            round(sum(sent) / len(sent)),
            cpu_s,
        )

    def _all(self, part: Callable[[int, AsyncMember], Awaitable[T]]) -> tuple[list[T], list[int]]:
        """What each member's part comes to, all at once, and the bytes that each sent."""
        before = [transport.sent for _, transport in self._members]

        async def together() -> list[T]:
            members = (member for member, _ in self._members)
            return await asyncio.gather(*(part(number, member) for number, member in enumerate(members)))

        done = self._runner.run(together())
        return done, [each.sent - sent for (_, each), sent in zip(self._members, before, strict=True)]

    def _cpu_s(self) -> float:
        """CPU seconds of this process and the coordinator's so far."""
        return time.process_time() + self.coordinator.cpu_s


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
