"""The SDK's members and the real coordinator.

A test runs members' flows step by step and kills them at any step, or runs whole members in threads.

Members' requests are recorded, and the coordinator's answers may be changed.
"""

import hashlib
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load

from client_sdk.agent import Agent
from client_sdk.database import STATE_FILE
from client_sdk.effects import Effect, Flow, Request, Together
from client_sdk.environment import Environment
from client_sdk.errors import NoResult
from client_sdk.identity import Identity
from client_sdk.member import Conversations, Member
from client_sdk.operator import Operator
from client_sdk.policy import Policy
from client_sdk.progress import Progress
from client_sdk.records import Records
from client_sdk.reservations import Run
from client_sdk.result import Result
from client_sdk.transport import BlockingDriver
from service.coordination.coordinator import Coordinator as Service
from service.coordination.federations import Federations
from service.coordination.journal import read_survivors
from service.coordination.rounds import LiveRound, Round
from tests.support.answers import Answer, rewritten
from tests.support.serving import TOKEN, Line, Sent, Stage, kind_of
from tests.support.simulator import of, simulated_content, simulated_question, simulated_roster
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Certificate, Link, Lost, Roster, Study, Terms
from veilsum.protocol.record import ResultRecord, sign_record
from veilsum.protocol.request_signature import SIGNATURE_HEADER, SIGNATURE_INPUT_HEADER, RequestSignature
from veilsum.protocol.rest import OCTETS_TYPE, RoundView, round_name
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import DAY_S, SUM_STEP, Content
from veilsum.study.vectors import compute_vector

T = TypeVar("T")
P = TypeVar("P", bound=MemberPhase)
RECORDS = "GET .*/result|POST .*/answers"
"""Requests whose answer is a result's record."""
Steps = Generator[tuple[str, Effect], None, Any]

DIM, CLASSES = 3, ("left", "right")
LEAST = 17
"""Rows of a member, so that three members are enough."""
WITHHOLDING: dict[str, Any] = {"withhold": {"margin": 0}}
NOISY: dict[str, Any] = {
    "noise": {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"},
    "withhold": None,
}
POLLED = re.compile(
    r"GET (.*/runs|/v1/cohorts/<\d+>(/pairings/<me>)?|/v1/rounds/<\d+>(/requests/<me>|/result)?)"
)
"""What members poll; how often, and between which of their requests, depends on the other members."""
PATIENCE_S = 120.0
"""Time limit of one run of whole members."""
LOOK_S, TOGETHER_S = 0.15, 0.02
"""How long a leader waits for a message that may end a phase, and then for those that come with it."""
ENDING_KINDS = {"Enrolment", "Pairing", "Reveal", "Erased"}
"""Messages of which the last one leaves something to the leader."""


class Stopped(BaseException):
    """A member's machine stops, or the play is over."""


def nothing(*_: Any) -> None:
    """Default `on_request`: let the request pass."""


def unchanged(*given: Any) -> Any:
    """Return the last argument: the default for `on_answer` and `lie`."""
    return given[-1]


class Consortium:
    """Members' folders, an admin, an operator, and a study of the sums of features.

    Attributes:
        made: those that have opened a member since a fixture closed them last.
        policy: of members that start from now on; it approves every study of `make_study`.
        open: the members whose flows are run step by step.
        given: records of whole members, if not `records(member, period)`.
        rehearsal: the canary pack and tolerance that studies name from now on.
        holds: whether a long poll is held until there is news. Otherwise it is answered at once.
        on_request: called before a member's request is sent and after it was answered; may stop the member.
        on_answer: returns a hostile coordinator's answer in place of the true one.
        lie: returns a colluder's vector in place of the true one.
        silent: members that stop when they are shown a certificate, and reveal nothing.
        away: members that don't restart when they are stopped, in addition to silent ones.
        tries: how many rounds the operator opens in a cohort before it gives up on one that failed.
        sent: requests of each member since the last play began.
        vectors: masked vectors, by member, period and step.
        outcomes: of the last play: each member's result, or why it has none.
    """

    made: ClassVar[list["Consortium"]] = []

    def __init__(
        self,
        stage: Stage,
        folder: Path,
        members: int = 3,
        *,
        readers: Sequence[str] = (),
        question: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        rehearsal: Mapping[str, Any] | None = None,
        held_out: float = 0.0,
    ) -> None:
        self.folder = folder
        self.admin = SigningKey(hashlib.sha256(str(folder).encode()).digest())
        self.coordinator_key = stage.server.coordinator.key
        width = len(str(members - 1))
        self.ids = tuple(f"member-{index:0{width}}" for index in range(members))
        self.question, self.after, self.rehearsal = dict(question or {}), dict(after or {}), rehearsal
        for member in self.ids:
            Identity.create(folder / member, member, held_out=held_out)
        self.policy = Policy(self.admin.public)
        self.attach(stage)
        self.events: list[tuple[str, Progress]] = []
        self.open: dict[str, Conversations] = {}
        self.transcripts, self.holds, self.number, self.cohort = False, True, 1, ""
        self.given = dict[str, Records]()
        self.on_request: Callable[[str, Sent, str], None] = nothing
        self.on_answer: Callable[[str, Sent, httpx.Response], httpx.Response] = unchanged
        self.lie: Callable[[str, RoundSpec, Any], Any] = unchanged
        self.silent, self.away, self.tries = set[str](), set[str](), 1
        self.sent: dict[str, list[Sent]] = {member: [] for member in self.ids}
        self.vectors = dict[tuple[str, str, str], list[Any]]()
        self.outcomes = dict[str, Any]()
        self.over, self.news = threading.Event(), threading.Event()
        self.roster = self.make_roster(1, readers=tuple(readers))
        self.name = self.operator.publish_roster(self.roster).federation
        self.publish(self.make_study())

    def attach(self, stage: Stage) -> None:
        """Send all requests to this coordinator from now on."""
        self.stage, self.clock = stage, stage.server.clock
        self.operator = Operator(stage.url, TOKEN, driver=BlockingDriver(stage.url, transport=Line(stage)))
        self.driver = BlockingDriver(stage.url, transport=Tap(self), sleep=self.clock.sleep)

    def make_roster(self, number: int, admin: SigningKey | None = None, **changes: Any) -> Roster:
        keys = {member: Identity.load(self.folder / member).public for member in self.ids}
        values = {"number": number, "federation": self.admin.public, "study_key": self.admin.public}
        return simulated_roster(
            admin or self.admin, self.coordinator_key.public, keys, **{**values, **changes}
        )

    def content(self, notes: Mapping[str, Any] | None = None, **question: Any) -> Content:
        """Make a study's content: all classes published, unless the consortium or the caller overrides it."""
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
        expires_s = int(self.clock()) + 80 * DAY_S
        return simulated_content(values, expires_s, notes, self.after, self.rehearsal)

    def make_study(self, notes: Mapping[str, Any] | None = None, **question: Any) -> Study:
        """Make a signed study that members approve from now on."""
        content = self.content(notes, **question)
        self.policy = replace(self.policy, approved={*self.policy.approved, content.approval})
        return Study.make_signed(self.admin, federation=self.admin.public, content=content.to_bytes())

    def publish(self, study: Study) -> None:
        """Publish the study, and sum it in cohorts that are opened from now on."""
        self.study = study
        self.operator.publish_study(study)

    def revise(self, notes: Mapping[str, Any] | None = None, **question: Any) -> None:
        """Publish another version of the study."""
        self.number += 1
        self.publish(self.make_study({**(notes or {}), "version": self.number}, **question))

    def data(self, member: str, period: str = "p1") -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return a member's features and labels, which differ in each period."""
        index = self.ids.index(member)
        rng = np.random.default_rng([index, *period.encode()])
        rows = LEAST + 3 + index
        labels = rng.integers(0, len(CLASSES), rows)
        labels[:10] = np.arange(10) % len(CLASSES)
        return rng.standard_normal((rows, DIM)) + labels[:, None], labels

    def records(self, member: str, period: str = "p1") -> Records:
        """Return a member's `data` as records, with an id for each row."""
        features, labels = self.data(member, period)
        return Records(features, labels, [f"{period}-{row}" for row in range(len(labels))])

    # The operator's side

    def open_cohort(self, period: str = "p1", repeats: str | None = None) -> str:
        return self.operator.open_cohort(self.name, self.study.hash.hex(), period, repeats).cohort

    def open_round(self, cohort: str) -> str:
        """Open the run's next step, with a lifetime of a day."""
        return self.operator.open_round(cohort, lifetime_s=DAY_S).round

    def expire(self, round_id: str) -> None:
        """Move the clock past the deadline of the round's phase."""
        deadline_s = self.operator.round(round_id).deadline_s
        self.stage.pass_time(deadline_s or 0.0)

    def expiring(self, round_id: str) -> Callable[[], bool]:
        """Return a `stuck` callback that lets the round's phase expire."""

        def stuck() -> bool:
            if self.operator.round(round_id).ended:
                return False
            self.expire(round_id)
            return True

        return stuck

    def leading_on(self, cohort: str) -> Callable[[], bool]:
        """Return a `stuck` callback that opens the run's next step."""

        def stuck() -> bool:
            view = self.operator.cohort(cohort)
            running = view.rounds and not self.operator.round(view.rounds[-1]).ended
            if running or view.state != "formed" or view.step is None:
                return False
            self.open_round(cohort)
            return True

        return stuck

    def lose(self, round_id: str) -> None:
        """Have the admin close an erasing round."""
        lost = Lost.make_signed(self.admin, context=self.round(round_id).attempt.context)
        self.operator.close_lost(round_id, lost)

    @property
    def cohorts(self) -> tuple[str, ...]:
        return self.operator.federation(self.name).cohorts

    @property
    def rounds(self) -> tuple[str, ...]:
        return self.operator.federation(self.name).rounds

    def round(self, round_id: str) -> Round:
        """Return the coordinator's object of a round."""
        return self.stage.portal.call(self.stage.server.coordinator.catalogue.find_round, round_id)

    def live(self, round_id: str) -> LiveRound:
        """Return the coordinator's object of a round that has not ended."""
        return self.stage.server.live(round_id)

    def total(self, round_id: str) -> list[int]:
        values: list[int] = load(self.operator.sums(round_id))["sum"].tolist()
        return values

    def expected(self, round_id: str, members: Sequence[str] | None = None, period: str = "p1") -> list[int]:
        """Return the sum of the vectors that honest members send."""
        spec = self.round(round_id).attempt.spec
        vectors = [compute_vector(spec, *self.data(m, period)) for m in members or self.ids]
        values: list[int] = np.sum(vectors, axis=0).tolist()
        return values

    # What a hostile coordinator shows

    def shows(self, asked: str, shown: Answer, members: Sequence[str] = ()) -> None:
        """Have the coordinator change its answers to requests that match a pattern, for all members or some of them."""
        before = self.on_answer

        def on_answer(member: str, sent: Sent, answer: httpx.Response) -> httpx.Response:
            answer = before(member, sent, answer)
            meant = re.fullmatch(asked, f"{sent.method} {sent.path}") and member in (members or self.ids)
            return shown(answer) if meant else answer

        self.on_answer = on_answer

    def misstate(self, **changes: Any) -> None:
        """Have the coordinator sign result records with other values."""

        def signed(document: Any) -> Any:
            other = ResultRecord.model_validate(document).model_copy(update=changes)
            return sign_record(other, self.coordinator_key).model_dump(mode="json")

        self.shows(RECORDS, rewritten(signed))

    def instead(self, member: str, sent: Sent, round_id: str, other: str) -> httpx.Response:
        """Return the coordinator's answer about another round. If the request posts an answer, return what the member is asked there."""
        method, path = sent.method, sent.path.replace(round_id, other)
        if path.endswith("/answers"):
            method, path = "GET", path.replace("/answers", f"/requests/{member}")
        client = self.stage.server.signing(member, Identity.load(self.folder / member).key)
        headers = {"content-type": OCTETS_TYPE}
        asking = partial(client.request, method, path, content=sent.body, headers=headers)
        answer = self.stage.portal.call(asking)
        content = answer.content.replace(other.encode(), round_id.encode())
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)

    # Members whose flows are run step by step

    def member(self, member: str, **changes: Any) -> Conversations:
        """Start a new process of this member, in place of the one before."""
        if member in self.open:
            self.open.pop(member).close()
        if self not in self.made:
            self.made.append(self)
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

    def state(self, member: str) -> dict[str, Any]:
        """Return all that a member has stored."""
        return stored_in(self.folder / member)

    @contextmanager
    def copied(self, member: str) -> Iterator[None]:
        """Give a member its folder of before back at the end."""
        home, copy = self.folder / member, self.folder / "copy"
        self.close()
        shutil.copytree(home, copy)
        yield
        self.close()
        shutil.rmtree(home)
        copy.rename(home)

    def enrol(self, period: str = "p1", repeats: str | None = None) -> str:
        """Form a cohort of all members."""
        cohort = self.open_cohort(period, repeats)
        self.together(self.enrolments(cohort, period=period))
        return cohort

    def enrolments(
        self, cohort: str, members: Sequence[str] | None = None, period: str = "p1"
    ) -> dict[str, Flow[Any]]:
        return {m: self.member(m).enrol(cohort, self.records(m, period)) for m in members or self.ids}

    def contributions(self, round_id: str, members: Sequence[str] | None = None) -> dict[str, Flow[Any]]:
        return {m: self.member(m).contribute(round_id) for m in members or self.ids}

    def finish(self, round_id: str, member: str = "member-0") -> Any:
        """Let a new process of one member take part in a round to its end, and return its result."""
        return self.alone(self.member(member).contribute(round_id))

    def agents(self, of: str = "p1", **changes: Any) -> dict[str, Agent]:
        """Return all members' agents, ready to run once."""
        values: dict[str, Any] = {"once": True, **changes}
        return {m: self.member(m).make_agent(self.records(m, of), **values) for m in self.ids}

    def agent_flows(self, of: str = "p1", **changes: Any) -> dict[str, Flow[Any]]:
        """Return all members' agents on the way to their next results."""
        return {m: self.open[m].next_result(agent) for m, agent in self.agents(of, **changes).items()}

    @overload
    def phase(self, cohort: str, form: None = None, member: str = "member-0") -> MemberPhase: ...

    @overload
    def phase(self, cohort: str, form: type[P], member: str = "member-0") -> P: ...

    def phase(self, cohort: str, form: type[Any] | None = None, member: str = "member-0") -> Any:
        """Return the phase that the member's process has stored of a cohort; assert that it is of this form, if one is given."""
        held = self.open[member].session.store.load_phase(bytes.fromhex(cohort))
        assert held is not None
        return of(form or MemberPhase, held.phase)

    def stored_bytes(self, member: str = "member-0") -> bytes:
        """Return the bytes of all files of a member."""
        files = (path for path in (self.folder / member).rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)

    def run(self, cohort: str) -> dict[str, Any]:
        """Open a round of a cohort and let all members take part until it ends."""
        round_id = self.open_round(cohort)
        return self.together(self.contributions(round_id), stuck=self.expiring(round_id))

    def until(self, flow: Flow[Any], part: str, moment: str = "after") -> Steps:
        """Run a member up to the request whose name contains `part`."""
        steps = self.steps(flow)
        for state, effect in steps:
            if state == moment and part in asked(effect):
                return steps
        raise AssertionError(part)

    def run_until(self, flow: Flow[Any], part: str) -> None:
        """Run a member up to a request, then drop it."""
        self.until(flow, part).close()

    def steps(self, flow: Flow[T]) -> Generator[tuple[str, Effect], None, T]:
        """Yield ("waits" | "before" | "after", effect) around each effect; return the flow's result."""
        try:
            effect = next(flow)
            while True:
                try:
                    outcome: Any
                    if isinstance(effect, Together):
                        assert effect.lanes >= 1
                        outcome = []
                        for lane in effect.flows:
                            outcome.append((yield from self.steps(lane)))
                    else:
                        while self._held(effect):
                            yield "waits", effect
                        yield "before", effect
                        outcome = self.driver.run(asking(effect))
                        yield "after", effect
                except Exception as error:  # noqa: BLE001 - the flow handles it
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()

    def _held(self, effect: Effect) -> bool:
        """Whether the coordinator holds the request as a long poll, until its member is asked something new."""
        if not (self.holds and isinstance(effect, Request) and effect.method == "GET" and effect.wait_s):
            return False
        kind, name = effect.path.split("/")[2:4]
        here = self.stage.server.coordinator
        if "manifest" in effect.params:
            cohort = here.catalogue.cohorts[name]
            assert cohort.window is not None
            return not cohort.is_settled and cohort.window.manifest.hash.hex() == effect.params["manifest"]
        things = None if kind == "federations" else getattr(here.catalogue, kind)
        watch = here.runs.watch_of(name) if things is None else things[name].watch
        return watch._urgent.version() <= int(effect.params["after"])

    def alone(self, flow: Flow[T]) -> T:
        """Run one flow to its end; fail if it waits without news."""
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
        started: Mapping[str, Steps] | None = None,
    ) -> dict[str, Any]:
        """Interleave flows. When all of them wait, `stuck` may move time and returns whether it did.

        Args:
            flows: by member.
            stuck: called when all flows wait.
            vanish: by member, part of the request after which the member is dropped.
            started: flows of members that have already started.

        Returns:
            Results by member; exceptions count as results.
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
                except Exception as error:  # noqa: BLE001 - returned to the caller
                    results[member] = error
                    del running[member]
            if running and waiting == len(running) and not stuck():
                for steps in running.values():
                    steps.close()
                return results
        return results

    # Whole members in threads

    def sdk(self, member: str) -> Member:
        """Start a new process of this member."""
        driver = BlockingDriver(self.stage.url, transport=Tap(self))
        identity, here = Identity.load(self.folder / member), Environment(now_s=self.clock)
        return Member(self.stage.url, identity, self.policy, environment=here, driver=driver)

    def play(self, period: str = "p1", repeats: str | None = None, *, resumed: bool = False) -> None:
        """Hold a run from its first card to its end, or until no member takes part any more.

        Args:
            period, repeats: of a new cohort.
            resumed: continue the last cohort instead.
        """
        if not resumed:
            self.cohort = self.open_cohort(period, repeats)
            self.sent = {member: [] for member in self.ids}
        with ThreadPoolExecutor(len(self.ids)) as pool:
            going = {member: pool.submit(self._join, member, period) for member in self.ids}
            for each in going.values():
                each.add_done_callback(lambda _: self.news.set())
            try:
                end_s = time.monotonic() + PATIENCE_S
                while waiting := {member for member, each in going.items() if not each.done()}:
                    assert time.monotonic() < end_s, (waiting, self.operator.cohort(self.cohort), going)
                    self._lead(waiting)
                    self.news.wait(LOOK_S)
                    time.sleep(TOGETHER_S)
                    self.news.clear()
            finally:
                self.over.set()
        self.over.clear()
        self.outcomes = {member: each.exception() or each.result() for member, each in going.items()}
        if self.operator.cohort(self.cohort).state == "enrolling":
            self.operator.close_cohort(self.cohort)

    def _join(self, member: str, period: str) -> Result:
        """Take a member through a whole run; restart it whenever its machine stops."""
        crashed = False
        while True:
            records = self.given.get(member) or self.records(member, period)
            try:
                with self.sdk(member) as process:
                    if crashed and (view := self.operator.cohort(self.cohort)).step is None:
                        return process.contribute(view.rounds[-1])
                    [result] = process.join(records, once=True, period=period)
                    return result
            except Stopped:
                crashed = True
                if self.over.is_set() or member in self.silent | self.away:
                    raise

    def _lead(self, waiting: set[str]) -> None:
        """Form the cohort, open the next step, and let time pass if no member is left to wait for."""
        view = self.operator.cohort(self.cohort)
        if view.state == "enrolling" and waiting <= set(view.cards):
            self.operator.close_cohort(self.cohort)
        if view.state == "pairing" and waiting <= set(view.paired):
            self.stage.pass_time(view.deadline_s or 0.0)
        if view.state != "formed":
            return
        last = self.operator.round(view.rounds[-1]) if view.rounds else None
        if last is None or last.state == "done" or (last.ended and len(view.rounds) < self.tries):
            if self.operator.cohort(self.cohort).step is not None:
                self.operator.open_round(self.cohort)
        elif last.ended or (last.state == "erasing" and not waiting & set(last.waiting_for)):
            self.over.set()
        elif last.waiting_for and not waiting & set(last.waiting_for):
            assert last.deadline_s is not None
            self.stage.pass_time(last.deadline_s)

    def come_back(self, members: Sequence[str] = ()) -> RoundView:
        """Pass the last round's latest end, let members finish one after another, and return the round."""
        self.stage.pass_time(self.last.spec.latest_end_s)
        with pytest.MonkeyPatch.context() as patched:  # hold no poll: no other member makes news
            patched.setattr(self.stage.server.coordinator.polls, "_max_wait_s", 0.0)
            patched.setattr("client_sdk.session.POLL_MIN_S", 0.0)
            for member in members or self.ids:
                with self.sdk(member) as process, suppress(NoResult):
                    process.contribute(self.last.round)
        return self.last

    # Results

    @property
    def last(self) -> RoundView:
        """The last round of the last play."""
        return self.operator.round(self.operator.cohort(self.cohort).rounds[-1])

    def refusals(self) -> set[Any]:
        """Why members have no result of the last play: causes and types of errors."""
        missing = (each for each in self.outcomes.values() if not isinstance(each, Result))
        return {getattr(each, "cause", type(each)) for each in missing}

    def kinds(self) -> set[str]:
        """Return the kinds of messages that members have sent."""
        return {each.kind for member in self.ids for each in self.sent[member] if each.kind}

    def requests(self, part: str = "") -> list[Sent]:
        """Return members' requests to paths that contain `part`."""
        return [each for member in self.ids for each in self.sent[member] if part in each.path]

    def bodies(self) -> dict[tuple[str, str, str], set[bytes]]:
        """Return the bodies of members' messages, by member, path and kind."""
        found = dict[tuple[str, str, str], set[bytes]]()
        for member in self.ids:
            for each in self.sent[member]:
                if each.kind:
                    found.setdefault((member, each.path, each.kind), set()).add(each.body)
        return found

    def trace(self, member: str) -> list[tuple[Any, ...]]:
        """Return what a member has sent, in order, with names replaced by placeholders, without polled requests."""
        names, kept = dict[str, str](), []

        def known(name: re.Match[str]) -> str:
            return names.setdefault(name[0], f"<{len(names)}>")

        for each in self.sent[member]:
            path = re.sub("[0-9a-f]{64}|[0-9a-f]{16}", known, each.path.replace(member, "<me>"))
            kept.append((each.method, path, each.kind, each.length, each.headers))
        return [request for request in kept if not POLLED.fullmatch(f"{request[0]} {request[1]}")]

    def ledger(self, member: str) -> tuple[Run, ...]:
        with self.sdk(member) as found:
            return found.ledger()

    def links(self) -> tuple[Link, ...]:
        return self.operator.chain(self.name).links

    def sums(self) -> list[list[int]]:
        """Return every sum that the coordinator has computed, oldest first."""
        certified = [link for link in self.links() if (link.reason, link.step) == (NO_REASON, SUM_STEP)]
        return [self.total(round_name(link.context)) for link in certified]


def stored_in(folder: Path) -> dict[str, Any]:
    """Return all that a member has stored in its folder: the rows of each table, and the bytes of each other file."""
    state = folder / "state"
    with closing(sqlite3.connect(state / STATE_FILE)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in tables}
    files = (path for path in state.rglob("*") if path.is_file() and not path.name.startswith(STATE_FILE))
    return rows | {str(path.relative_to(state)): path.read_bytes() for path in files}


def asked(effect: Effect) -> str:
    return f"{effect.method} {effect.path}" if isinstance(effect, Request) else ""


def asking(effect: Effect) -> Flow[Any]:
    """Make a flow of one effect."""
    return (yield effect)


class Tap(httpx.BaseTransport):
    """Transport from members to the coordinator."""

    def __init__(self, consortium: Consortium) -> None:
        self.consortium, self.line = consortium, Line(consortium.stage)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        made, sent = self.consortium, Sent.of(request)
        signed = map(request.headers.get, (SIGNATURE_INPUT_HEADER, SIGNATURE_HEADER))
        member = RequestSignature.parse(*signed).keyid
        if made.over.is_set():
            raise Stopped
        made.on_request(member, sent, "before")
        made.sent[member].append(sent)
        answer = self.line.handle_request(request)
        if member in made.silent and kind_of(answer.headers, answer.content) == Certificate.__name__:
            raise Stopped
        if sent.kind in ENDING_KINDS:
            made.news.set()
        made.on_request(member, sent, "after")
        return made.on_answer(member, sent, answer)


@contextmanager
def hostile(
    consortium: Consortium,
    step: str = SUM_STEP,
    links: tuple[Link, ...] | None = None,
    over: Collection[bytes] | None = None,
    **changes: Any,
) -> Iterator[None]:
    """Make the coordinator open whatever it is told to, without checking its own rules.

    Args:
        consortium: whose runs these are.
        step: the step to open.
        links: the history to show; None for the true one.
        over: cohorts whose runs count as over; None for all cohorts with an ended attempt.
        changes: to the terms.
    """
    honest_terms, honest_links = Service._make_terms, Federations.read_links
    over = {link.cohort for link in consortium.links()} if over is None else over

    async def check_new(service: Any, _federation: str, _study: Any, _period: str, repeats: bytes) -> Any:
        if repeats == NO_CONTEXT:
            return ()
        return await read_survivors(service.database, repeats)

    async def terms(*given: Any) -> Terms:
        return replace(await honest_terms(*given), **changes)

    async def shown(*given: Any) -> Any:
        return await honest_links(*given) if links is None else links

    async def no_check(*_: Any) -> None:
        pass

    def next_step(*_: Any, cohort: bytes, **_run: Any) -> str | None:
        return None if cohort in over else step

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Service, "_check_new", check_new)
        patched.setattr(Service, "_check_attempt", no_check)
        patched.setattr(Service, "_make_terms", terms)
        patched.setattr(Federations, "read_links", shown)
        patched.setattr("service.coordination.coordinator.check_possible", nothing)
        patched.setattr("service.coordination.runs.next_step", next_step)
        patched.setattr("service.coordination.coordinator.next_step", next_step)
        yield
