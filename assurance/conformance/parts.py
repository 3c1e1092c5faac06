"""What the client is shown: the catalogue's attacks on members, at the place where the coordinator would show the honest message."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from assurance.attacks import to_members
from assurance.attacks.base import ENROLMENT, Attack, Chapter, Shown
from assurance.conformance.circumstances import circumstances
from assurance.conformance.federation import SHAPES, Shape
from assurance.conformance.honest import FalseBox, HonestRun, OtherData
from assurance.conformance.invitations import invitations
from assurance.conformance.packs import packs
from assurance.conformance.play import Doctoring, Part, Play
from assurance.conformance.tap import Answer, Asked
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Ciphertexts,
    Deliveries,
    ErasureRequest,
    Freeze,
    Lost,
    Opening,
)

SETTLED_S = 3.0
OTHER = b"\x66" * 32


@dataclass
class FromCatalogue(Doctoring):
    """An attack of the catalogue, on the live message in the place of the recorded one."""

    attack: Shown

    def __post_init__(self) -> None:
        self.rule, self.name = self.attack.rule, self.attack.name
        self.refusal: Cause | None = self.attack.cause if self.rule.startswith("FREEZE") else None
        self.is_of_round = self.attack.after and self.attack.attempt != ENROLMENT

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        attack, federation = self.attack, play.federation
        if attack.after:
            if not self._is_after(asked, play):
                return None
        elif not isinstance(answer.message, attack.form):
            return None
        with suppress(TimeoutError):
            await asyncio.wait_for(federation.settled.wait(), SETTLED_S)
        forming = attack.attempt == ENROLMENT
        if not forming and asked.round not in federation.rounds[attack.attempt : attack.attempt + 1]:
            return None
        forger = play.forger_of(attack.attempt)
        honest = forger.said(attack.form, "coordinator", federation.client, attack.nth)
        made = attack.make(honest, forger)
        data = made if isinstance(made, bytes) else made.to_bytes()  # type: ignore[attr-defined]  # a message
        return Answer.octets(data, answer, is_false=True)

    def _is_after(self, asked: Asked, play: Play) -> bool:
        """Whether the client has taken the honest message, and this request is one that the false one may answer."""
        attack = self.attack
        taken = any(isinstance(message, attack.form) for _, message in play.shown)
        if attack.form is Cards:
            return taken and f"/pairings/{play.part.client}" in asked.path
        if attack.form is Ciphertexts:
            return taken and "/requests/" in asked.path
        return taken and asked.path.endswith(("/answers", f"/requests/{play.part.client}"))


def catalogue() -> Iterator[Part]:
    """Make a part for each place at which attacks are shown. Where a round goes on after a false answer, each attack has its own."""
    attacks_on_members = (*to_members.attacks(), *live_attacks())
    shown = [each for each in attacks_on_members if isinstance(each, Shown) and each.now_s is None]

    def place(attack: Shown) -> tuple[Any, ...]:
        late = attack.after and attack.attempt != ENROLMENT
        alone = attack.name if late or attack.rule.startswith("FREEZE") else ""
        return attack.round, attack.attempt, attack.to, attack.form.__name__, attack.after, alone

    for (round_, attempt, to, form, after, alone), attacks in groupby(sorted(shown, key=place), place):
        when = "after" if after else "instead of"
        name = alone or f"{round_} {attempt}: {when} {form} to {to}"
        shown_falsely = [FromCatalogue(each) for each in attacks]
        # A member has nothing to say to a loss.
        yield Part(name, SHAPES[round_], to, shown_falsely, is_lively=form != Lost.__name__)


def live_attacks() -> list[Attack]:
    """Return attacks that the catalogue plays otherwise: on every decoder, by the clock, or by showing an honest message again."""
    add = (boxes := Chapter("coordinator", "member-1", Deliveries)).add
    add(
        "boxes of another version",
        "DECODE-1",
        "",
        Cause.UNKNOWN_VERSION,
        lambda m, _: b"\x05" + m.to_bytes()[1:],
    )
    add(
        "boxes of no kind", "DECODE-2", "", Cause.UNKNOWN_MESSAGE, lambda m, _: b"\x04\xc8" + m.to_bytes()[2:]
    )
    add("boxes without the last byte", "DECODE-3", "", Cause.TRUNCATED, lambda m, _: m.to_bytes()[:-1])
    add("a byte after the boxes", "DECODE-6", "", Cause.LEFT_OVER_BYTES, lambda m, _: m.to_bytes() + b"\0")
    found = boxes.attacks
    for form in (Opening, Deliveries, Freeze, Certificate):
        add = (again := Chapter("coordinator", "member-1", form)).add
        add(f"the same {form.__name__} again", "replay", "", Cause.WRONG_PHASE, lambda m, _: m, after=True)
        found += again.attacks
    add = (opening := Chapter("coordinator", "member-0", Opening, attempt=1)).add
    add(
        "an opening whose latest end has passed",
        "OPEN-5",
        "",
        Cause.TERMS_EXPIRED,
        lambda m, f: f.again(m, "coordinator", terms=replace(m.terms, latest_end_s=int(time.time()) - 1)),
    )
    add = (erasing := Chapter("coordinator", "member-2", ErasureRequest, "erased")).add
    add(
        "a report that is asked for in another context",
        "ERASE-1",
        "",
        Cause.WRONG_CONTEXT,
        lambda _m, _f: ErasureRequest(OTHER),
    )
    return [*found, *opening.attacks, *erasing.attacks]


def honest() -> Iterator[Part]:
    """Whole runs without a false answer: of exact sums with counts, of noisy ones, with a false member, and with data that change."""
    yield Part("honest: counts, rows and a sum", SHAPES["count"], "member-0", (), play=HonestRun)
    yield Part(
        "honest: a noisy mean and sum", replace(SHAPES["complete"], drop={}), "member-0", (), play=HonestRun
    )
    yield Part("a box that holds no shares", Shape(5, false_box="member-4"), "member-0", (), play=FalseBox)
    yield Part("other data after the card", SHAPES["plain"], "member-0", (), play=OtherData)


def all_parts() -> Iterator[Part]:
    """Return every part, the honest runs first."""
    yield from honest()
    yield from invitations()
    yield from packs()
    yield from circumstances()
    yield from catalogue()
