"""Clients' and helpers' flows against the real coordinator, step by step: a process may end before or after any effect."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from client_sdk.conversations import Conversations
from client_sdk.effects import Compute, Effect, Flow, Pause, Request, Response, Together
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.progress import Progress
from client_sdk.surroundings import THIS_MACHINE
from tests.service.helping.driver import HelperParty
from tests.service.serving import Server
from tests.service.signing import KEYS

T = TypeVar("T")


class Killed(Exception):  # noqa: N818 - no error
    """The process is gone."""


class People:
    """SDK identities in the place of some of a party's members.

    Attributes:
        sent: every body that left, by member, method and the path's last part.
    """

    def __init__(self, folder: Path, party: HelperParty, server: Server) -> None:
        self.folder, self.party, self.server = folder, party, server
        self.open: dict[str, Conversations] = {}
        self.sent: dict[tuple[str, str], set[bytes]] = {}
        self.told: list[tuple[str, Progress]] = []

    def adopt(self, *members: str) -> None:
        """Let the SDK be these members; before the roster is signed."""
        for member in members:
            self.party.keys[member] = KEYS[member] = Identity.create(self.folder / member, member).key

    def process(self, member: str, **policy: Any) -> Conversations:
        """A fresh process of this member: the one before is gone."""
        self.close(member)
        self.open[member] = Conversations(
            Identity.load(self.folder / member),
            None,
            Policy(admin_key=self.party.admin.public, **policy),
            progress=lambda event: self.told.append((member, event)),
            patience_s=5.0,
            lanes=2,
            surroundings=THIS_MACHINE,
        )
        return self.open[member]

    def close(self, *members: str) -> None:
        for member in members or tuple(self.open):
            if member in self.open:
                self.open.pop(member).close()

    async def run(self, member: str, flow: Flow[T], budget: int | None = None, *, before: bool = False) -> T:
        """Carry a flow out; with a budget it is killed at that effect, before or after it is carried out."""
        left = [budget]

        async def one(flow: Flow[Any]) -> Any:
            try:
                effect = next(flow)
                while True:
                    try:
                        outcome = await self._perform(member, effect, left, one, before=before)
                    except Killed:
                        raise
                    except Exception as error:  # noqa: BLE001 - the flow's to handle
                        effect = flow.throw(error)
                    else:
                        effect = flow.send(outcome)
            except StopIteration as end:
                return end.value
            finally:
                flow.close()

        result: T = await one(flow)
        return result

    async def _perform(
        self,
        member: str,
        effect: Effect,
        left: list[int | None],
        one: Callable[[Flow[Any]], Any],
        *,
        before: bool,
    ) -> Any:
        if isinstance(effect, Together):
            return [await one(make()) for make in effect.flows]
        if before:
            self._spend(left)
        match effect:
            case Request():
                outcome: Any = await self._send(member, effect)
            case Pause():
                await asyncio.sleep(0.01)
                outcome = None
            case Compute(work):
                outcome = work()
        if not before:
            self._spend(left)
        return outcome

    @staticmethod
    def _spend(left: list[int | None]) -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    async def _send(self, member: str, request: Request) -> Response:
        if request.body:
            kind = "/".join(request.path.split("/")[4:])
            if request.path.endswith("answers"):
                kind = f"answer {request.body[1]}"
            self.sent.setdefault((member, kind), set()).add(request.body)
        assert request.signer is not None
        async with self.server.signing(request.signer.keyid, request.signer.key) as client:
            answer = await client.request(
                request.method,
                request.path,
                content=request.body or None,
                headers=dict(request.headers),
                params=dict(request.params) or None,
            )
        return Response(answer.status_code, {n.lower(): v for n, v in answer.headers.items()}, answer.content)

    async def crashing(
        self, member: str, flow: Callable[[Conversations], Flow[T]], *, before: bool = False
    ) -> T:
        """A process that dies at its first effect, then at its second, …, until it gets through."""
        budget = 0
        while True:
            try:
                return await self.run(member, flow(self.process(member)), budget, before=before)
            except Killed:
                budget += 1
