"""The SDK passes every part, and a client that lacks a check is reported for the rule of that check, and for no other."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assurance.conformance.clients import Start
from assurance.conformance.parts import all_parts
from assurance.conformance.play import Finding, Limits, Part, Verdict, play_part
from client_sdk import AsyncMember, Identity, Policy, Records
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Voted
from veilsum.protocol.messages import Vote

PARTS = {part.name: part for part in all_parts()}
LIMITS = Limits(quiet_s=2.0)


class Sdk:
    """The SDK in this process, so that a test can take a check away."""

    task: asyncio.Task[None] | None = None
    output = ""

    async def create(self, folder: Path, member: str, admin: str) -> bytes:
        self.admin = admin
        return Identity.create(folder, member, held_out=0.0).key.public

    async def start(self, start: Start) -> None:
        self.task = asyncio.create_task(self._join(start))

    async def _join(self, start: Start) -> None:
        data = json.loads(start.data.read_text())
        policy = Policy(self.admin, approved=set(start.approvals), mu_budget=5.0)
        try:
            records = Records(data["features"], data["labels"], data["ids"])
            async with AsyncMember(start.url, Identity.load(start.folder), policy) as member:
                async for _ in member.join(records, once=True):
                    pass
        except Exception as error:  # noqa: BLE001 - a client that lacks a check may fail anywhere
            self.output = repr(error)

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task


def play(part: Part, limits: Limits = LIMITS) -> list[Finding]:
    return asyncio.run(play_part(part, Sdk(), limits))


QUICK = {
    "honest: counts, rows and a sum",
    "invitations: a roster that was seen",
    "complete -1: after Cards to member-0",
}
"""Parts that are played with every change; the others are slow."""
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in PARTS]
)
def test_the_sdk_keeps_every_rule_that_a_part_tries(name: str) -> None:
    findings = play(PARTS[name])
    assert not [each for each in findings if each.verdict is Verdict.BROKEN]
    assert name not in QUICK or any(each.verdict is Verdict.KEPT for each in findings), findings


def test_a_member_stays_in_its_run_after_cards_that_name_a_stranger() -> None:
    part = PARTS["complete -1: instead of Cards to member-0"]
    findings = play(replace(part, doctorings=[each for each in part.doctorings if each.rule == "CARDS-3"]))
    assert [each.verdict for each in findings] == [Verdict.KEPT], findings


def nothing(*_values: Any, **_named: Any) -> None:
    """Check nothing."""


def sign_again(phase: Voted, outcome: bytes, key: SigningKey) -> Any:
    vote = Vote.make_signed(key, context=phase.attempt.context, member=phase.member, outcome=outcome)
    return phase, (vote,)


MUTANTS: dict[str, tuple[str, str, Any]] = {
    "STUDY-2": ("invitations: rosters and studies", "veilsum.protocol.messages.Study.verify", nothing),
    "STUDY-5": ("invitations: rosters and studies", "veilsum.study.signed.check_expiry", nothing),
    "STUDY-6": ("invitations: a study that was seen", "client_sdk.store.Store.newest_study", nothing),
    "STUDY-7": ("invitations: a study that was seen", "client_sdk.policy.Policy.check_study", nothing),
    "ROSTER-3": (
        "invitations: a roster that was seen",
        "veilsum.protocol.messages.Roster.check_after",
        nothing,
    ),
    "SELECT-4": (
        "invitations: rows with one feature that is not zero",
        "client_sdk.enrolment.rows_bear_sum",
        lambda *_: True,
    ),
    "RESTORE-2": ("a restored folder", "client_sdk.enrolment._check_newest_card", nothing),
    "CARDS-10": (
        "complete -1: instead of Cards to member-0",
        "veilsum.protocol.messages.KeyCard.verify",
        nothing,
    ),
    "CARDS-11": (
        "complete -1: instead of Cards to member-0",
        "veilsum.protocol.messages.Cards.check_bound",
        nothing,
    ),
    "CARDS-15": (
        "complete -1: instead of Cards to member-0",
        "veilsum.protocol.member.enrolled.check_mlkem_keys",
        nothing,
    ),
    "CIPHER-3": (
        "complete -1: instead of Ciphertexts to member-0",
        "veilsum.protocol.pairing.verify_signature",
        nothing,
    ),
    "OPEN-2": (
        "complete 1: instead of Opening to member-0",
        "veilsum.protocol.messages.Opening.verify",
        nothing,
    ),
    "BOX-5": (
        "complete 0: instead of Deliveries to member-1",
        "veilsum.protocol.messages.UploadHeader.verify",
        nothing,
    ),
    "BOX-7": (
        "complete 0: instead of Deliveries to member-1",
        "veilsum.protocol.member.attempting.Receiving._check_paths",
        nothing,
    ),
    "BOX-8": ("a box that holds no shares", "veilsum.protocol.member.attempting.check_shares", nothing),
    "VOTE-3": (
        "another set, after the vote",
        "veilsum.protocol.member.attempting.Voted.sign_vote",
        sign_again,
    ),
    "END-2": (
        "erased 0: instead of Erasure to member-2",
        "veilsum.protocol.attempt.Attempt.check_erasure",
        lambda attempt, erasure: attempt.check_context(erasure.context, "coordinator"),
    ),
}
"""By rule: the part that tries it, and a check of the SDK that this client lacks."""


QUICK_MUTANTS = {"STUDY-7", "RESTORE-2", "BOX-5"}


@pytest.mark.parametrize(
    "rule", [rule if rule in QUICK_MUTANTS else pytest.param(rule, marks=SLOW) for rule in MUTANTS]
)
def test_a_client_without_one_check_breaks_its_rule_alone(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, check, instead = MUTANTS[rule]
    monkeypatch.setattr(check, instead)
    findings = play(shortened(PARTS[name]))
    assert {each.rule for each in findings if each.verdict is Verdict.BROKEN} == {rule}, findings


def shortened(part: Part) -> Part:
    """Keep two false answers for each rule."""
    kept = [
        each
        for place, each in enumerate(part.doctorings)
        if [other.rule for other in part.doctorings[:place]].count(each.rule) < 2
    ]
    return replace(part, doctorings=kept)
