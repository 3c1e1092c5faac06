"""Members' folders, an admin and a coordinator; flows run step by step, and may be killed at any of them."""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from calibration import FFCStatistics, SumsLattice
from client_sdk.conversations import Conversations
from client_sdk.effects import Compute, Effect, Flow, Pause, Request, Together
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.progress import Progress
from client_sdk.surroundings import Surroundings
from protocol.identity import SigningKey
from protocol.messages import Entry, LedgerException, Roster
from tests.client_sdk.local_coordinator import CLASSES, DIM, LocalCoordinator

T = TypeVar("T")

EXTRACTOR = hashlib.sha256(b"an extractor").digest()


def tensor(dtype: str, shape: Sequence[int], size: int) -> bytes:
    """A safetensors file of zeros, also of a type or shape that numpy has not."""
    described = {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}
    head = json.dumps({"weights": described, "sum": described | {"data_offsets": [size, 2 * size]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(2 * size)


class Clock:
    """Time stands still until a test moves it, or a flow pauses."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


class Federation:
    def __init__(self, folder: Path, members: int = 3, *, readers: Sequence[str] = ()) -> None:
        self.folder, self.clock = folder, Clock()
        self.admin, self.coordinator_key = SigningKey(b"A" * 32), SigningKey(b"C" * 32)
        self.ids = tuple(f"member-{index}" for index in range(members))
        for member in self.ids:
            Identity.create(folder / member, member)
        self.roster = self.make_roster(1)
        self.coordinator = LocalCoordinator(self.coordinator_key, self.roster, self.clock)
        self.policy = Policy(admin_key=self.admin.public)
        self.events: list[tuple[str, Progress]] = []
        self.open: dict[str, Conversations] = {}

    def make_roster(self, version: int, admin: SigningKey | None = None, **changes: Any) -> Roster:
        values = {
            "version_number": version,
            "federation": self.admin.public,
            "coordinator": self.coordinator_key.public,
            "members": tuple(Entry(m, Identity.load(self.folder / m).public) for m in self.ids),
            "decryptors": (),
            "extractors": (EXTRACTOR,),
            "readers": (),
            "withhold": 0,
        }
        return Roster.make(admin or self.admin, **{**values, **changes})

    def member(self, member: str, **changes: Any) -> Conversations:
        """A fresh process of this member: the one before is gone."""
        if member in self.open:
            self.open.pop(member).close()
        values: dict[str, Any] = {
            "roster": None,
            "policy": self.policy,
            "progress": lambda event: self.events.append((member, event)),
            "patience_s": 60.0,
            "lanes": 2,
            "surroundings": Surroundings(now_s=self.clock, monotonic_s=self.clock, jitter=lambda: 1.0),
        }
        values.update(changes)
        self.open[member] = Conversations(Identity.load(self.folder / member), **values)
        return self.open[member]

    def close(self) -> None:
        while self.open:
            self.open.popitem()[1].close()

    def statistics(self, member: str, lineage: str = "main", **settings: Any) -> FFCStatistics:
        """A member's records under this lineage: other ones under another."""
        index = self.ids.index(member)
        rng = np.random.default_rng([index, *lineage.encode()])
        statistics = FFCStatistics(DIM, CLASSES, normalise=True, **settings)
        statistics.update(rng.standard_normal((5 + index, DIM)), rng.integers(0, CLASSES, 5 + index))
        return statistics

    def enrol(self, **cohort: Any) -> str:
        """Form a cohort of everybody."""
        name = self.coordinator.open_cohort(**cohort)
        self.together({m: self.member(m).enrol(name) for m in self.ids})
        return name

    def contributions(
        self, round_id: str, members: Sequence[str] | None = None, lineage: str = "main"
    ) -> dict[str, Flow[Any]]:
        return {
            m: self.member(m).contribute(round_id, self.statistics(m, lineage), lineage)
            for m in members or self.ids
        }

    def exception(
        self, cohort: str, sequence: int, members: Sequence[str], **changes: Any
    ) -> LedgerException:
        """The admin's leave to expose these members' groups in one round."""
        values: dict[str, Any] = {
            "federation": self.admin.public,
            "cohort": bytes.fromhex(cohort),
            "sequence": sequence,
            "members": tuple(members),
            "reason": "a test",
        }
        return LedgerException.make(self.admin, **{**values, **changes})

    def total(self, round_id: str) -> list[int]:
        total = self.coordinator.rounds[round_id].total
        assert total is not None
        values: list[int] = total.tolist()
        return values

    def expected(self, members: Sequence[str], **settings: Any) -> list[int]:
        vectors = [self.statistics(m, **settings).vector(SumsLattice(31)) for m in members]
        values: list[int] = np.sum(vectors, axis=0).tolist()
        return values

    # Running flows

    def perform(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self.coordinator.handle(effect)
            case Pause(seconds):
                self.clock.sleep(seconds)
                return None
            case Compute(work):
                return work()
            case Together():
                raise AssertionError("steps() runs these")

    def until(self, flow: Flow[Any], part: str, moment: str = "after") -> "Steps":
        """Run a member up to the request that holds `part`."""
        steps = self.steps(flow)
        for state, effect in steps:
            if state == moment and part in asked(effect):
                return steps
        raise AssertionError(part)

    def run_until(self, flow: Flow[Any], part: str) -> None:
        """The same, then drop it."""
        self.until(flow, part).close()

    def expiring(self, round_id: str) -> Callable[[], bool]:
        """Where everybody waits, the phase's time is up."""

        def stuck() -> bool:
            if self.coordinator.view(round_id).ended:
                return False
            self.coordinator.expire(round_id)
            return True

        return stuck

    def steps(self, flow: Flow[T]) -> Generator[tuple[str, Effect], None, T]:
        """Yield ("before" | "after" | "waits", effect) around each effect; return the flow's result."""
        try:
            effect = next(flow)
            while True:
                try:
                    outcome: Any
                    if isinstance(effect, Together):
                        assert effect.lanes >= 1
                        outcome = []
                        for make in effect.flows:
                            outcome.append((yield from self.steps(make())))
                    else:
                        while isinstance(effect, Request) and not self.coordinator.has_news(effect):
                            yield "waits", effect
                        yield "before", effect
                        outcome = self.perform(effect)
                        yield "after", effect
                except Exception as error:  # noqa: BLE001 - the flow's to handle
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()

    def alone(self, flow: Flow[T]) -> T:
        """Run one flow; a wait without news is an error."""
        steps = self.steps(flow)
        while True:
            try:
                state, effect = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            assert state != "waits", f"{effect} waits for ever"

    def together(
        self,
        flows: dict[str, Flow[Any]],
        kill: "Kill | None" = None,
        stuck: Callable[[], bool] = lambda: False,
        vanish: Mapping[str, str] | None = None,
        started: "Mapping[str, Steps] | None" = None,
    ) -> dict[str, Any]:
        """Interleave flows; where all of them wait, `stuck` may move time and says whether it did.

        Args:
            flows: by member.
            kill: restarts a member at one of its effects.
            stuck: called where everybody waits.
            vanish: by member, part of the request after which it is dropped.
            started: members that are under way.

        Returns:
            Results by member, exceptions among them.
        """
        running = {member: self.steps(flow) for member, flow in flows.items()} | dict(started or {})
        results: dict[str, Any] = {}
        while running:
            waiting = 0
            for member in list(running):
                try:
                    state, effect = next(running[member])
                    if kill is not None and kill.strikes(member, state, effect):
                        running[member].close()
                        running[member] = self.steps(kill.again())
                    if state == "after" and (vanish or {}).get(member, "\0") in asked(effect):
                        running.pop(member).close()
                        continue
                    waiting += state == "waits"
                except StopIteration as end:
                    results[member] = end.value
                    del running[member]
                except Exception as error:  # noqa: BLE001 - handed back
                    results[member] = error
                    del running[member]
            if running and waiting == len(running) and not stuck():
                for steps in running.values():
                    steps.close()
                return results
        return results


class Kill:
    """Ends a member's process at one effect, before or after it is carried out, and starts it again."""

    def __init__(self, member: str, moment: str, number: int, again: Callable[[], Flow[Any]]) -> None:
        self.member, self.moment, self.number, self.again = member, moment, number, again
        self.struck: Effect | None = None
        self.count = 0

    def strikes(self, member: str, state: str, effect: Effect) -> bool:
        if member != self.member or state != self.moment or self.struck is not None:
            return False
        self.count += 1
        if self.count <= self.number:
            return False
        self.struck = effect
        return True


def asked(effect: Effect) -> str:
    return f"{effect.method} {effect.path}" if isinstance(effect, Request) else ""


Steps = Generator[tuple[str, Effect], None, Any]
