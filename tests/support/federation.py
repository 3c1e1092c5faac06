"""Members' folders, an admin and a coordinator; flows run step by step, and may be killed at any of them."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from client_sdk.agent import Agent
from client_sdk.effects import Compute, Effect, Flow, Pause, Request, Together
from client_sdk.environment import Environment
from client_sdk.identity import Identity
from client_sdk.member import Conversations
from client_sdk.policy import Policy
from client_sdk.progress import Progress
from client_sdk.records import Records
from tests.support.local_coordinator import LocalCoordinator
from tests.support.simulator import simulated_content, simulated_question, simulated_roster
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Roster, Study
from veilsum.protocol.study import DAY_S, Content
from veilsum.study.vectors import vector

T = TypeVar("T")

DIM, CLASSES = 3, ("left", "right")
LEAST = 17
"""Rows of a member, so that three of them are enough."""
WITHHOLDING: dict[str, Any] = {"withhold": {"margin": 0}, "thin_classes": False}
NOISY: dict[str, Any] = {
    "noise": {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"},
    "withhold": None,
}


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
    """Three members and a study of the sums of their features; `question` and `after` change the study's fields.

    Attributes:
        made: all that are open; the fixture `closed` closes those of a test.
    """

    made: ClassVar[list["Federation"]] = []

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        *,
        readers: Sequence[str] = (),
        question: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        admin: bytes = b"A" * 32,
    ) -> None:
        self.made.append(self)
        self.folder, self.clock = folder, Clock()
        self.admin, self.coordinator_key = SigningKey(admin), SigningKey(b"C" * 32)
        self.ids = tuple(f"member-{index}" for index in range(members))
        self.question, self.after = dict(question or {}), dict(after or {})
        for member in self.ids:
            Identity.create(folder / member, member)
        self.roster = self.make_roster(1, readers=tuple(readers))
        self.policy = Policy(admin_key=self.admin.public, mu_budget=1e3)
        self.study = self.make_study()
        self.coordinator = LocalCoordinator(self.coordinator_key, self.roster, self.study, self.clock)
        self.events: list[tuple[str, Progress]] = []
        self.open: dict[str, Conversations] = {}
        self.transcripts = False

    def make_roster(self, number: int, admin: SigningKey | None = None, **changes: Any) -> Roster:
        keys = {member: Identity.load(self.folder / member).public for member in self.ids}
        values = {
            "number": number,
            "federation": self.admin.public,
            "study_key": self.admin.public,
            **changes,
        }
        return simulated_roster(admin or self.admin, self.coordinator_key.public, keys, **values)

    def content(self, notes: Mapping[str, Any] | None = None, **question: Any) -> Content:
        """A study's content: all classes published, unless the federation or the caller says otherwise."""
        values = {
            **simulated_question(len(self.ids)),
            "dim": DIM,
            "classes": list(CLASSES),
            "ring_bits": 48,
            "records": {"least": LEAST, "most": 40, "least_per_class": 5, "rows_per_id": 1},
            **self.question,
            **question,
        }
        notes = {"name": "study", **(notes or {})}
        return simulated_content(values, int(self.clock()) + 80 * DAY_S, notes, self.after)

    def make_study(self, notes: Mapping[str, Any] | None = None, **question: Any) -> Study:
        """A signed study, which members approve from now on."""
        content = self.content(notes, **question)
        self.policy = replace(self.policy, approved={*self.policy.approved, content.approval})
        return Study.make(self.admin, federation=self.admin.public, content=content.to_bytes())

    def member(self, member: str, **changes: Any) -> Conversations:
        """A fresh process of this member: the one before is gone."""
        if member in self.open:
            self.open.pop(member).close()
        values: dict[str, Any] = {
            "policy": self.policy,
            "progress": lambda event: self.events.append((member, event)),
            "patience_s": 60.0,
            "lanes": 2,
            "transcripts": self.transcripts,
            "environment": Environment(now_s=self.clock, monotonic_s=self.clock, jitter=lambda: 1.0),
        }
        values.update(changes)
        self.open[member] = Conversations(Identity.load(self.folder / member), **values)
        return self.open[member]

    def close(self) -> None:
        while self.open:
            self.open.popitem()[1].close()

    def data(self, member: str, period: str = "p1") -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """A member's features and labels, other ones in each period."""
        index = self.ids.index(member)
        rng = np.random.default_rng([index, *period.encode()])
        rows = LEAST + 3 + index
        labels = rng.integers(0, len(CLASSES), rows)
        labels[:10] = np.arange(10) % len(CLASSES)
        return rng.standard_normal((rows, DIM)) + labels[:, None], labels

    def records(self, member: str, period: str = "p1") -> Records:
        """The same with an id a row."""
        features, labels = self.data(member, period)
        return Records(features, labels, [f"{period}-{row}" for row in range(len(labels))])

    def enrol(self, period: str = "p1", repeats: str | None = None) -> str:
        """Form a cohort of everybody."""
        cohort = self.coordinator.open_cohort(period, repeats)
        self.together({m: self.member(m).enrol(cohort, self.records(m, period)) for m in self.ids})
        return cohort

    def contributions(self, round_id: str, members: Sequence[str] | None = None) -> dict[str, Flow[Any]]:
        return {m: self.member(m).contribute(round_id) for m in members or self.ids}

    def agents(self, of: str = "p1", **changes: Any) -> dict[str, Agent]:
        """Everybody's agent, ready to run once."""
        values: dict[str, Any] = {"once": True, **changes}
        return {m: self.member(m).agent(self.records(m, of), **values) for m in self.ids}

    def run(self, cohort: str, **changes: Any) -> dict[str, Any]:
        """Open a round of a cohort and let everybody take part until it ends."""
        round_id = self.coordinator.open_round(cohort, **changes)
        return self.together(self.contributions(round_id), stuck=self.expiring(round_id))

    def total(self, round_id: str) -> list[int]:
        total = self.coordinator.rounds[round_id].total
        assert total is not None
        values: list[int] = total.tolist()
        return values

    def expected(self, round_id: str, members: Sequence[str] | None = None, period: str = "p1") -> list[int]:
        """The sum of the vectors that these members should have sent."""
        spec = self.coordinator.rounds[round_id].phase.attempt.spec
        vectors = [vector(spec, *self.data(m, period)) for m in members or self.ids]
        values: list[int] = np.sum(vectors, axis=0).tolist()
        return values

    def leading_on(self, cohort: str) -> Callable[[], bool]:
        """Where everybody waits, the operator opens the run's next step."""

        def stuck() -> bool:
            entry = self.coordinator.cohorts[cohort]
            running = entry.rounds and not self.coordinator.view(entry.rounds[-1]).ended
            if running or entry.manifest is None or self.coordinator.next_step(cohort) is None:
                return False
            self.coordinator.open_round(cohort)
            return True

        return stuck

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
        stuck: Callable[[], bool] = lambda: False,
        vanish: Mapping[str, str] | None = None,
        started: "Mapping[str, Steps] | None" = None,
    ) -> dict[str, Any]:
        """Interleave flows; where all of them wait, `stuck` may move time and says whether it did.

        Args:
            flows: by member.
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


def asked(effect: Effect) -> str:
    return f"{effect.method} {effect.path}" if isinstance(effect, Request) else ""


Steps = Generator[tuple[str, Effect], None, Any]
