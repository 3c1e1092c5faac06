"""One part: a client is shown false answers, one after another, then the honest one; what it sends tells which rules it keeps."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from assurance.conformance.clients import Client, Start
from assurance.conformance.federation import ADMIN, Federation, LiveForger, NotTriedError, Shape
from assurance.conformance.tap import Answer, Asked, Tap
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Message, Refusal, Reveal
from veilsum.protocol.study import Content

TICK_S = 0.02


class Verdict(Enum):
    """What a part found about one false answer."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """A verdict about a rule, with what was shown and seen."""

    rule: str
    name: str
    verdict: Verdict
    seen: str = ""
    expected: str = ""


class Doctoring:
    """A false answer. A client that keeps the rule sends nothing new after it; with `refusal`, a Refusal with this cause."""

    rule: str
    name: str
    refusal: Cause | None = None
    is_of_round = False
    """Whether a message in another round shows that the client has refused this."""

    async def answer(self, asked: Asked, play: "Play") -> Answer | None:
        """Answer in the coordinator's place; None to ask it."""

    async def change(self, asked: Asked, answer: Answer, play: "Play") -> Answer | None:
        """Return another answer; None to leave it. What is to be judged has `is_false`."""


@dataclass(frozen=True)
class Limits:
    """How long a part waits, in seconds.

    Attributes:
        quiet_s: a client that makes no request for this long has refused what it was shown.
        idle_s: the same, once it waits for news of other runs.
        step_s: for each false answer, and for the honest one.
    """

    quiet_s: float = 3.0
    idle_s: float = 0.3
    step_s: float = 30.0


@dataclass(frozen=True)
class Part:
    """False answers to one client in one federation.

    Attributes:
        name: describes it.
        shape: of the federation.
        client: the member that the client plays.
        doctorings: in order.
        is_lively: whether an honest client sends something once it is shown the honest answer.
        approves: further digests of studies that the client's owner approves.
        is_sequence: whether each false answer is false only after those before it.
    """

    name: str
    shape: Shape
    client: str
    doctorings: Sequence[Doctoring]
    is_lively: bool = True
    approves: tuple[str, ...] = ()
    is_sequence: bool = False
    play: "type[Play] | None" = None
    """How it is played; None for `Play`."""


@dataclass
class Play:
    """A part being played."""

    part: Part
    client: Client
    limits: Limits
    findings: list[Finding] = field(default_factory=list)

    async def run(self) -> list[Doctoring]:
        """Play until the part ends or the client breaks a rule; return the doctorings that are left."""
        with tempfile.TemporaryDirectory() as place:
            self.folder = Path(place)
            await self._prepare()
            serving = asyncio.create_task(self.federation.serve(self.tap))
            try:
                ready: list[asyncio.Future[Any]] = [serving, self.tap.url]
                await asyncio.wait(ready, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    await serving
                await self._start()
                while not self.is_over and time.monotonic() < self.progress_s + self.limits.step_s:
                    await asyncio.sleep(TICK_S)
                    if serving.done():
                        await serving
                    await self._look()
                if not self.is_over:
                    self._give_up()
            finally:
                await self.client.stop()
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving
        return self.queue

    async def _prepare(self) -> None:
        part, self.tap = self.part, Tap()
        self.queue, self.is_over = list(part.doctorings), False
        self.current: Doctoring | None = None
        self.pending: list[Finding] = []
        self.memory: dict[str, Any] = {}  # what doctorings remember of this play
        self.sent: dict[bytes, Message] = {}
        self.shown: list[tuple[str | None, Message]] = []
        self.chunks: dict[str, bytes] = {}
        self.place, self.heard_s, self.quiet_s = "", time.monotonic(), self.limits.quiet_s
        self.progress_s = time.monotonic()
        public = await self.client.create(self.folder / "client", part.client, ADMIN)
        self.federation = Federation(part.shape, part.client, public, self.folder)
        self.tap.before, self.tap.after = self._before, self._after

    def forger_of(self, attempt: int) -> LiveForger:
        """Return all keys but the client's, and what was sent."""
        return LiveForger(self.federation, attempt)

    async def _start(self) -> None:
        await self.client.stop()
        self.tap.lane, self.heard_s, self.quiet_s = object(), time.monotonic(), self.limits.quiet_s
        approval = Content.from_bytes(self.federation.party.study.content).approval.hex()
        approvals = (approval, *self.part.approves)
        await self.client.start(
            Start(self.folder / "client", self.federation.data, self.tap.url.result(), approvals)
        )

    async def _look(self) -> None:
        """Judge a client that has ended or keeps quiet, and start it again."""
        quiet = time.monotonic() - self.heard_s > self.quiet_s
        if self.client.is_running and not quiet:
            return
        if self.current is not None:
            self._judge(None, "it made no further request" if self.client.is_running else "it ended")
        if not self.is_over and (not self.client.is_running or quiet):
            await self._start()

    # Requests

    async def _before(self, asked: Asked) -> Answer | None:
        if asked.lane is not self.tap.lane or self.is_over:
            return Answer(503, {b"retry-after": b"1"}, b"")
        message = asked.sends
        self._hear(asked)
        if "/chunks/" in asked.path and self.chunks.setdefault(asked.path, asked.body) != asked.body:
            self._break("replay", "a chunk", "a second chunk with other bytes", "the same bytes")
            return Answer(503, {}, b"")
        if message is not None and asked.body not in self.sent:
            return self._take(asked, message)
        if self.current is not None and self._asks_again(asked):
            self._judge(None, f"it asked again: {asked.method} {asked.path}")
        if not self.queue and self.current is None and self._is_alive(asked):
            self._end()
        if self.current is None and self.queue:
            return await self._doctored(asked, self.queue[0].answer(asked, self))
        if self.current is not None:
            return await self._doctored(asked, self.current.answer(asked, self))
        return None

    async def _after(self, asked: Asked, answer: Answer) -> Answer:
        self._hear(asked)
        doctoring = self.current or (self.queue[0] if self.queue else None)
        if doctoring is not None and asked.lane is self.tap.lane and answer.status < 300:
            try:
                changed = await self._doctored(asked, doctoring.change(asked, answer, self))
            except (NotTriedError, AssertionError, LookupError, TypeError, ValueError) as error:
                self._skip(doctoring, str(error) or repr(error))
                return await self._after(asked, answer)
            if changed is not None:
                return changed
        if (message := answer.message) is not None:
            answer.shown = lambda: self.shown.append((asked.round, message))
        return answer

    async def _doctored(self, asked: Asked, made: Any) -> Answer | None:
        answer: Answer | None = await made
        if answer is not None and answer.is_false and self.current is None:
            self.place = asked.path
            doctoring, lane = self.queue[0], self.tap.lane

            def shown() -> None:
                if (
                    self.tap.lane is lane
                    and self.current is None
                    and self.queue
                    and self.queue[0] is doctoring
                ):
                    self.current, self.quiet_s = self.queue.pop(0), self.limits.quiet_s
                    self.heard_s = time.monotonic()

            answer.shown = shown
        return answer

    def _hear(self, asked: Asked) -> None:
        """Note that the client is busy. One that waits for news of other runs is not."""
        if asked.path.endswith("/runs") and asked.waits:
            self.quiet_s = self.limits.idle_s if self.current else self.limits.quiet_s
        else:
            self.heard_s = time.monotonic()

    def _asks_again(self, asked: Asked) -> bool:
        """Whether the client asks for what it was shown falsely, which may have come with the answer to a message."""
        request = f"/v1/rounds/{asked.round}/requests/{self.part.client}"
        return asked.path == self.place or (asked.path == request and str(asked.round) in self.place)

    def _is_alive(self, asked: Asked) -> bool:
        return bool(self.pending) and (asked.path.endswith(("/result", "/disclosure/" + self.part.client)))

    def _take(self, asked: Asked, message: Message) -> Answer | None:
        """Take a message that the client has not sent before."""
        if self.current is not None and self.current.is_of_round and str(asked.round) not in self.place:
            self._judge(None, "it went on to the next round")
        if self.current is not None:
            self._judge(message, f"{type(message).__name__} ({getattr(message, 'cause', asked.path)})")
            return Answer(204, {}, b"") if not self.is_over else Answer(503, {}, b"")
        if (other := self._other_bytes(message)) is not None:
            self._break(
                "replay",
                type(message).__name__,
                f"another {type(message).__name__}",
                f"the bytes of {other.hex()[:16]}…",
            )
            return Answer(503, {}, b"")
        self.sent[asked.body] = message
        if not self.queue:
            self._end()
        return None

    def _other_bytes(self, message: Message) -> bytes | None:
        """Return what the client has sent before in the place of this message, if a member sends one alone."""
        if isinstance(message, Reveal | Refusal):
            return None
        return next(
            (data for data, sent in self.sent.items() if subject_of(sent) == subject_of(message)), None
        )

    # Verdicts

    def _judge(self, message: Message | None, seen: str) -> None:
        doctoring, self.current, self.progress_s = self.current, None, time.monotonic()
        assert doctoring is not None
        expected = (
            "nothing new" if doctoring.refusal is None else f"a signed Refusal ({doctoring.refusal.value})"
        )
        if doctoring.refusal is None:
            kept = message is None
        else:
            kept = isinstance(message, Refusal) and message.cause == doctoring.refusal.value
        if kept:
            self.pending.append(Finding(doctoring.rule, doctoring.name, Verdict.KEPT, seen, expected))
            if not self.queue and not self.part.is_lively:
                self._end()
        else:
            self._break(doctoring.rule, doctoring.name, seen, expected)

    def _break(self, rule: str, name: str, seen: str, expected: str) -> None:
        self.findings += [*self.pending, Finding(rule, name, Verdict.BROKEN, seen, expected)]
        self.pending, self.is_over = [], True

    def _skip(self, doctoring: Doctoring, why: str) -> None:
        self.findings.append(Finding(doctoring.rule, doctoring.name, Verdict.NOT_TRIED, why))
        if self.current is doctoring:
            self.current = None
        elif self.queue and self.queue[0] is doctoring:
            self.queue.pop(0)

    def _end(self) -> None:
        self.findings += self.pending
        self.pending, self.is_over = [], True

    def _give_up(self) -> None:
        """Say what a part that took too long did not find out."""
        last = type([*self.sent.values()][-1]).__name__ if self.sent else "nothing"
        why = f"the client, which last sent {last}, never took the honest answer: {self.client.output[-300:]}"
        for each in self.pending:
            self.findings.append(Finding(each.rule, each.name, Verdict.NOT_TRIED, why))
        for doctoring in (*([self.current] if self.current else []), *self.queue):
            self.findings.append(
                Finding(doctoring.rule, doctoring.name, Verdict.NOT_TRIED, f"never shown; last sent {last}")
            )
        self.pending, self.queue, self.is_over = [], [], True


def subject_of(message: Message) -> tuple[Any, ...]:
    """Return what a member may send one message about: its type, and the context, manifest or cohort."""
    header = getattr(message, "header", message)
    card = getattr(message, "card", None)
    about = (
        getattr(card, "cohort", None)
        or getattr(header, "context", None)
        or getattr(message, "manifest", None)
    )
    return type(message), about


async def play_part(part: Part, client: Client, limits: Limits) -> list[Finding]:
    """Play a part to its end. What is left after a broken rule is played in a fresh federation."""
    findings, left = list[Finding](), part.doctorings
    while True:
        play = (part.play or Play)(replace(part, doctorings=left), client, limits)
        left = await play.run()
        findings += play.findings
        if part.is_sequence:
            why = "a rule before it was broken"
            return findings + [Finding(each.rule, each.name, Verdict.NOT_TRIED, why) for each in left]
        if not left:
            return findings
