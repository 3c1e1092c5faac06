"""Parts that need the clock, several requests, or the client's folder: what a client must not send though each message alone is true."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from assurance.conformance.federation import SHAPES, Shape, make_party
from assurance.conformance.play import Doctoring, Finding, Part, Play, Verdict
from assurance.conformance.tap import Answer, Asked
from tests.support.forging import again
from veilsum.protocol.messages import Cards, Certificate, Deliveries, Enrolment, Freeze, Message, Opening
from veilsum.protocol.rest import PROBLEM_TYPE

MARGIN_S = 0.5
NOT_NOW = {
    "type": "/problems/wrong-phase",
    "title": "not now",
    "status": 409,
    "cause": "wrong-phase",
    "detail": "the attempt has not ended",
    "parties": [],
}
LAPSING = Shape(3, {"windows": {"enrol": 10, "upload": 60, "answer": 1}})
LAPSED_S = 10 + 4 * 1


@dataclass
class Held(Doctoring):
    """An honest message that comes too late: after the latest end, or after the keys have lapsed."""

    rule: str
    name: str
    form: type[Message]
    lapses: bool = False

    def __post_init__(self) -> None:
        self.is_of_round = not self.lapses

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        enrolled_s: float = play.memory.setdefault(
            "enrolled_s", time.time()
        )  # the answer to its card, or before
        if not isinstance(answer.message, self.form):
            return None
        openings = [
            each.message for each in play.federation.tap.messages if isinstance(each.message, Opening)
        ]
        until_s = enrolled_s + LAPSED_S if self.lapses else openings[0].terms.latest_end_s
        if not self.lapses and asked.round not in play.federation.rounds[:1]:
            return None
        await asyncio.sleep(max(0.0, until_s + MARGIN_S - time.time()))
        return replace(answer, is_false=True)


class OtherMaterial(Doctoring):
    """Material of another digest than the terms name."""

    rule, name = "NOISE-3", "material that is not that of the terms"

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        if not asked.path.endswith("/material"):
            return None
        return replace(answer, body=answer.body[:-1] + bytes([answer.body[-1] ^ 1]), is_false=True)


class NoEnd(Doctoring):
    """The next attempt's opening, from a coordinator that does not show how the last one ended."""

    rule, name = "OPEN-8", "an opening before the last attempt's end is shown"

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        first, shown = play.federation.rounds[:1], answer.message
        if asked.round in first and isinstance(shown, Certificate):
            if "/requests/" in asked.path or asked.path.endswith("/answers"):
                return Answer(
                    204, {k: v for k, v in answer.headers.items() if k.startswith(b"veilsum-")}, b""
                )
            return Answer(
                409, {b"content-type": PROBLEM_TYPE.encode()}, json.dumps(NOT_NOW).encode(), is_false=True
            )
        if asked.round not in first and isinstance(shown, Opening):
            return replace(answer, is_false=True)
        return None


class NewerRoster(Doctoring):
    """An opening in a cohort of the roster before the newest one."""

    rule, name = "OPEN-25", "an opening under a roster that is no longer the newest"

    async def answer(self, asked: Asked, play: Play) -> Answer | None:
        party = play.federation.party
        if not play.federation.rounds or asked.path != f"{party.where}/roster":
            return None
        return Answer.octets(again(party.roster, party.admin, number=6).to_bytes(), Answer(200, {}, b""))

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        if not isinstance(answer.message, Opening):
            return None
        return replace(answer, headers={**answer.headers, b"veilsum-roster": b"6"}, is_false=True)


class Restored(Play):
    """The client's folder is put back to before its first card."""

    async def _start(self) -> None:
        folder, copy = self.folder / "client", self.folder / "copy"
        if not copy.exists():
            shutil.copytree(folder, copy)
        elif any(isinstance(message, Enrolment) for message in self.sent.values()):
            await self.client.stop()
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
        await super()._start()


class Remembered(Doctoring):
    """The honest invitation, with the card that the folder has forgotten."""

    rule, name = "RESTORE-2", "an invitation in a folder from before its newest card"

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        sent = any(isinstance(message, Enrolment) for message in play.sent.values())
        if not sent:
            return None
        if "stopped" not in play.memory:
            play.memory["stopped"] = True
            await play.client.stop()
        if asked.path.endswith("/invitation") and json.loads(answer.body)["card"]:
            return replace(answer, is_false=True)
        return None


class NextPeriod(Play):
    """After a whole run the next period is opened, with the same records.

    Attributes:
        rule: what keeps the client away.
        question: fields in which the study of that period differs from the first one.
    """

    rule: ClassVar = "LEDGER-1"
    question: ClassVar[Mapping[str, Any]] = {}
    over_s: float | None = None
    opened_s: float | None = None
    invited = False

    def _end(self) -> None:
        self.progress_s = time.monotonic()

    async def _before(self, asked: Asked) -> Answer | None:
        self.invited |= self.opened_s is not None and self.federation.party.cohort in asked.path
        return await super()._before(asked)

    def _take(self, asked: Asked, message: Message) -> Answer | None:
        if self.opened_s is not None and isinstance(message, Enrolment):
            self._break(
                self.rule, self.part.name, "a card for the next period", "no card: its records are taken"
            )
            return Answer(503, {}, b"")
        return super()._take(asked, message)

    async def _look(self) -> None:
        federation = self.federation
        if federation.over.is_set():
            self.over_s = self.over_s or time.monotonic()
        ended = self.over_s is not None and time.monotonic() > self.over_s + self.limits.quiet_s
        if self.opened_s is None and (ended or (self.over_s is not None and not self.client.is_running)):
            federation.halted, self.opened_s = True, time.monotonic()
            if self.question:
                federation.party.question = {**federation.party.question, **self.question}
                await federation.party.publish_study(federation.server, name="other")
            await federation.party.open_cohort(federation.server, period="period-1")
            await self._start()
        elif self.opened_s is not None and time.monotonic() > self.opened_s + 2 * self.limits.quiet_s:
            verdict = Verdict.KEPT if self.invited else Verdict.NOT_TRIED
            seen = "it sent no card" if self.invited else "it never looked at the next period"
            self.findings.append(Finding(self.rule, self.part.name, verdict, seen, "no card"))
            self.is_over = True
        elif self.opened_s is None:
            await super()._look()

    def _give_up(self) -> None:
        self.findings.append(
            Finding(self.rule, self.part.name, Verdict.NOT_TRIED, "the first run had no end")
        )
        self.is_over = True


class OtherQuestion(NextPeriod):
    """After a whole exact run another question's is opened, with the same records."""

    question: ClassVar = {"constant": True}


class ExactStudy(NextPeriod):
    """After a whole noisy run an exact study's is opened, with the same records."""

    rule = "LEDGER-7"
    question: ClassVar = {"noise": None}


def following(name: str, play: type[NextPeriod], shape: Shape = SHAPES["plain"]) -> Part:
    """Return a part of two runs over the same records."""
    later = make_party(replace(shape, question={**shape.question, **play.question}))
    approval = later.make_content(time.time(), name="other").approval.hex()
    return Part(name, shape, "member-0", (), play=play, approves=(approval,))


def circumstances() -> Iterator[Part]:
    """Return all parts of this module."""
    late = [Held("PHASE-1", "boxes after the latest end", Deliveries)]
    yield Part("late: boxes", replace(SHAPES["erased"], drop={}), "member-2", late, is_lively=False)
    late = [Held("LAPSE-2", "survivors after the latest end", Freeze)]
    yield Part("late: survivors", replace(SHAPES["erased"], drop={}), "member-2", late, is_lively=False)
    late = [Held("LAPSE-1", "cards after the keys have lapsed", Cards, lapses=True)]
    yield Part("late: cards", LAPSING, "member-0", late, is_lively=False)
    yield Part("other material", SHAPES["complete"], "member-0", [OtherMaterial()])
    yield Part("no end of the last attempt", SHAPES["voided"], "member-0", [NoEnd()])
    yield Part("a newer roster", SHAPES["plain"], "member-0", [NewerRoster()], is_lively=False)
    enrolling = replace(SHAPES["plain"], latecomer="member-3")
    yield Part("a restored folder", enrolling, "member-0", [Remembered()], is_lively=False, play=Restored)
    yield following("the next period with the same records", NextPeriod)
    yield following("another question with the same records", OtherQuestion)
    noisy = replace(SHAPES["complete"], drop={})
    yield following("an exact study with the records of a noisy sum", ExactStudy, noisy)
