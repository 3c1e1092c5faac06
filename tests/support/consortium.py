"""Where attacks on studies are played: the real coordinator on 127.0.0.1, SDK members in threads, and a note of whatever they send."""

import hashlib
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from safetensors.numpy import load

from client_sdk import upload
from client_sdk.environment import Environment
from client_sdk.errors import NoResult
from client_sdk.identity import Identity
from client_sdk.member import Member
from client_sdk.operator import Operator
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.reservations import Reservations, Run
from client_sdk.result import Result
from client_sdk.session import Session
from client_sdk.transport import BlockingDriver
from service.coordinator import Coordinator as Service
from service.coordinator import certificate_of
from service.federations import Federations
from service.storage.tables import metadata
from service.telemetry import logs
from tests.support.federation import Federation
from tests.support.serving import TOKEN, Server, running, served
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Certificate, Link, Terms, parse
from veilsum.protocol.rest import OCTETS, RoundView, round_name
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import SUM_STEP

DIARIES = {"audit", "audit_head", "leases", "nonces"}
"""Tables that note who asked, not what was said."""
POLLED = re.compile(r".*/runs|/v1/cohorts/<\d+>|/v1/rounds/<\d+>(/requests/<me>)?")
"""What members wait for: how often they ask depends on the others."""
PATIENCE_S = 120.0
"""For one run."""


class Stopped(BaseException):
    """A member's machine stops, or the play is over."""


@dataclass(frozen=True)
class Coordinator:
    """The real app, served over HTTP; one for many federations."""

    server: Server
    portal: BlockingPortal
    url: str

    def pass_time(self, until_s: float) -> None:
        """Let deadlines come, for the coordinator and all members."""
        self.server.clock.ahead_s += max(0.0, until_s - self.server.clock())
        self.portal.call(self.server.coordinator.scheduler.wake)

    def stored(self) -> dict[str, bytes]:
        """Digest of every row and blob, by its table or folder and its key."""
        folder, found = self.server.folder, dict[str, bytes]()
        with closing(sqlite3.connect(f"file:{folder}/coordinator.sqlite3?mode=ro", uri=True)) as database:
            for table in metadata.sorted_tables:
                if table.name not in DIARIES:
                    keys = [table.columns.keys().index(column.name) for column in table.primary_key]
                    for row in database.execute(f'SELECT * FROM "{table.name}"'):
                        name = "/".join([table.name, *(str(row[key]) for key in keys)])
                        found[name] = hashlib.sha256(repr(row).encode()).digest()
        for path in (folder / "blobs").rglob("*"):
            if path.is_file():
                found[str(path.relative_to(folder / "blobs"))] = hashlib.sha256(path.read_bytes()).digest()
        return found


@contextmanager
def coordinator(folder: Path, max_wait_s: float = 2.0) -> Iterator[Coordinator]:
    logs.configure(quiet=True)
    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(running(folder, max_wait_s=max_wait_s)) as server,
        portal.wrap_async_context_manager(served(server)) as url,
    ):
        yield Coordinator(server, portal, url)


@dataclass(frozen=True)
class Sent:
    """A request as it went out: its message's kind, its body's length, and the headers with their lengths."""

    method: str
    path: str
    kind: str
    length: int
    headers: tuple[tuple[str, int], ...]
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, request: httpx.Request) -> Self:
        body, path = request.read(), request.url.path
        headers = tuple(sorted((name, len(value)) for name, value in request.headers.items()))
        kind = "Chunk" if "/chunks/" in path else kind_of(request.headers, body)
        return cls(request.method, path, kind, len(body), headers, body)


def kind_of(headers: Mapping[str, str], body: bytes) -> str:
    """A message's name; empty for other contents."""
    return type(parse(body)).__name__ if body and headers.get("content-type") == OCTETS else ""


def nothing(*_: Any) -> None:
    """Let a request pass."""


def unchanged(*given: Any) -> Any:
    """Let what comes last pass as it is."""
    return given[-1]


class Consortium(Federation):
    """A federation whose members are `client_sdk.Member`, with default policies that approve whatever is published.

    Attributes:
        given: what each member has, where that is not `records(member, period)`.
        on_request: is told of a member's request before it is sent, and after it was answered; may stop the member.
        on_answer: what a hostile coordinator makes of an answer.
        lie: what a colluder makes of its vector.
        silent: members that stop where they are shown a certificate, and reveal nothing.
        away: members that don't start again when they are stopped, beside silent ones.
        tries: rounds that the operator opens in a cohort before it gives up one that failed.
        sent: what each has sent since the last cohort was opened.
        vectors: what each has masked, by member, period and step.
        outcomes: of the last run: a member's result, or why it has none.
    """

    def __init__(self, stage: Coordinator, folder: Path, members: int = 5, **question: Any) -> None:
        super().__init__(
            folder, members, question=question, admin=hashlib.sha256(str(folder).encode()).digest()
        )
        self.stage, self.number, self.cohort = stage, 0, ""
        self.clock = stage.server.clock  # type: ignore[assignment]  # its own, from now on
        self.policy, self.operator = Policy(self.admin.public), Operator(stage.url, TOKEN)
        key = bytes.fromhex(self.operator.coordinator().public_key)
        self.name = self.operator.publish_roster(self.make_roster(1, coordinator=key)).federation
        self.given = dict[str, Records]()
        self.on_request: Callable[[str, Sent, str], None] = nothing
        self.on_answer: Callable[[str, Sent, httpx.Response], httpx.Response] = unchanged
        self.lie: Callable[[str, RoundSpec, Any], Any] = unchanged
        self.silent, self.away, self.tries = set[str](), set[str](), 1
        self.sent: dict[str, list[Sent]] = {member: [] for member in self.ids}
        self.vectors = dict[tuple[str, str, str], list[Any]]()
        self.outcomes = dict[str, Any]()
        self.over = threading.Event()
        self.publish()

    def publish(self, notes: Mapping[str, Any] | None = None, **question: Any) -> None:
        """Another version of the study, which the next run is of."""
        self.number += 1
        self.study = self.make_study({**(notes or {}), "version": self.number}, **question)
        self.operator.publish_study(self.study)

    def sdk(self, member: str) -> Member:
        """A fresh process of this member."""
        driver = BlockingDriver(self.stage.url, transport=Tap(self, member))
        identity, here = Identity.load(self.folder / member), Environment(now_s=self.stage.server.clock)
        return Member(self.stage.url, identity, self.policy, environment=here, driver=driver)

    def play(self, period: str = "p1", repeats: str | None = None, *, resumed: bool = False) -> None:
        """A run from its first card to its end, or until no member takes part any more.

        Args:
            period, repeats: of a new cohort.
            resumed: go on with the last one.
        """
        if not resumed:
            self.cohort = self.operator.open_cohort(self.name, self.study.hash.hex(), period, repeats).cohort
            self.sent = {member: [] for member in self.ids}
        with ThreadPoolExecutor(len(self.ids)) as pool:
            going = {member: pool.submit(self._join, member, period) for member in self.ids}
            try:
                end_s = time.monotonic() + PATIENCE_S
                while waiting := {member for member, each in going.items() if not each.done()}:
                    assert time.monotonic() < end_s, waiting
                    self._lead(waiting)
                    time.sleep(0.15)
            finally:
                self.over.set()
        self.over.clear()
        self.outcomes = {member: each.exception() or each.result() for member, each in going.items()}
        if self.operator.cohort(self.cohort).state == "enrolling":
            self.operator.close_cohort(self.cohort)

    def _join(self, member: str, period: str) -> Result:
        """A member's whole run, started again wherever its machine stops."""
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
        """Form the cohort, open what is next, and let time pass where nobody is left who is waited for."""
        view = self.operator.cohort(self.cohort)
        if view.state == "enrolling" and waiting <= set(view.cards):
            self.operator.close_cohort(self.cohort)
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
        """Let the last round's latest end pass, and members do what is left to do; the round."""
        self.stage.pass_time(self.last.spec.latest_end_s)
        for member in members or self.ids:
            with self.sdk(member) as process, suppress(NoResult):
                process.contribute(self.last.round)
        return self.last

    # What came of it

    @property
    def last(self) -> RoundView:
        """The last round of the last run."""
        return self.operator.round(self.operator.cohort(self.cohort).rounds[-1])

    def refusals(self) -> set[Any]:
        """Why members have no result of the last run: causes, and kinds of errors."""
        missing = (each for each in self.outcomes.values() if not isinstance(each, Result))
        return {getattr(each, "cause", type(each)) for each in missing}

    def kinds(self) -> set[str]:
        """Of the messages that members have sent."""
        return {each.kind for member in self.ids for each in self.sent[member] if each.kind}

    def trace(self, member: str) -> list[tuple[Any, ...]]:
        """What a member has sent, in order, without names of its own and of runs; what it waits for is noted once, however long it waits."""
        seen, names, kept = set[str](), dict[str, str](), []

        def known(name: re.Match[str]) -> str:
            return names.setdefault(name[0], f"<{len(names)}>")

        for each in self.sent[member]:
            path = re.sub("[0-9a-f]{64}|[0-9a-f]{16}", known, each.path.replace(member, "<me>"))
            if path not in seen or not POLLED.fullmatch(path):
                kept.append((each.method, path, each.kind, each.length, each.headers))
            seen.add(path)
        return kept

    def ledger(self, member: str) -> tuple[Run, ...]:
        with self.sdk(member) as found:
            return found.ledger()

    def links(self) -> tuple[Link, ...]:
        return self.operator.chain(self.name).links

    def sums(self) -> list[list[int]]:
        """Every sum that the coordinator has computed, oldest first."""
        certified = [link for link in self.links() if (link.reason, link.step) == (NO_REASON, SUM_STEP)]
        return [load(self.operator.sums(round_name(link.context)))["sum"].tolist() for link in certified]


class Tap(httpx.BaseTransport):
    """A member's line to the coordinator."""

    def __init__(self, consortium: Consortium, member: str) -> None:
        self.consortium, self.member, self.line = consortium, member, httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        made, member, sent = self.consortium, self.member, Sent.of(request)
        if made.over.is_set():
            raise Stopped
        made.on_request(member, sent, "before")
        made.sent[member].append(sent)
        with closing(self.line.handle_request(request)) as came:
            answer = httpx.Response(came.status_code, headers=came.headers, content=came.read())
        if member in made.silent and kind_of(answer.headers, answer.content) == Certificate.__name__:
            raise Stopped
        made.on_request(member, sent, "after")
        return made.on_answer(member, sent, answer)

    def close(self) -> None:
        self.line.close()


@contextmanager
def founded(stage: Coordinator, folder: Path, members: int = 5, **question: Any) -> Iterator[Consortium]:
    """A federation; the vectors that its members mask are noted, and colluders may change theirs."""
    made, honest, keep = (
        Consortium(stage, folder, members, **question),
        upload.own_vector,
        Reservations.keep_vector,
    )
    lies = list[Any]()

    def own_vector(session: Session, run: Run, spec: RoundSpec, material: Any) -> Any:
        own = honest(session, run, spec, material)
        if session.policy.federation == made.admin.public:
            told = made.lie(session.member, spec, own)
            lies.extend([told] if told is not own else [])
            made.vectors.setdefault((session.member, spec.period, spec.step), []).append(told)
            return told
        return own

    def keep_vector(ledger: Reservations, run: Run, name: str | None, vector: Any) -> bytes:
        """A liar may tell something else the next time."""
        return keep(ledger, run, None if any(vector is each for each in lies) else name, vector)

    with pytest.MonkeyPatch.context() as patched, made.operator:
        patched.setattr(upload, "own_vector", own_vector)
        patched.setattr(Reservations, "keep_vector", keep_vector)
        yield made


@contextmanager
def hostile(
    consortium: Consortium, step: str = SUM_STEP, links: tuple[Link, ...] | None = None, **changes: Any
) -> Iterator[None]:
    """The coordinator without rules of its own: it opens what it is told to, and the runs before stay over.

    Args:
        consortium: whose runs these are.
        step: which step it opens.
        links: the history that it shows; None for the true one.
        changes: to the terms.
    """
    honest_terms, honest_links = Service._terms, Federations.links
    over = {link.cohort for link in consortium.links()}

    async def check_new(service: Any, _federation: str, _study: Any, _period: str, repeats: bytes) -> Any:
        if repeats == NO_CONTEXT:
            return ()
        return certificate_of(await service.catalogue.round(round_name(repeats))).survivors

    async def terms(*given: Any) -> Terms:
        return replace(await honest_terms(*given), **changes)

    async def shown(*given: Any) -> Any:
        return await honest_links(*given) if links is None else links

    async def no_check(*_: Any) -> None:
        pass

    def next_step(_question: Any, _period: str, _repeats: bytes, cohort: bytes, _links: Any) -> str | None:
        return None if cohort in over else step

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Service, "_check_new", check_new)
        patched.setattr(Service, "_check", no_check)
        patched.setattr(Service, "_terms", terms)
        patched.setattr(Federations, "links", shown)
        patched.setattr("service.coordinator.check_possible", nothing)
        patched.setattr("service.runs.next_step", next_step)
        patched.setattr("service.coordinator.next_step", next_step)
        yield
