"""False rosters and studies: the client is invited to a cohort of its own, which follows from them, and must send no card."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rfc8785

from assurance.conformance.federation import COORDINATOR, Federation, Others, Shape, make_party
from assurance.conformance.play import Doctoring, Part, Play
from assurance.conformance.tap import Answer, Asked
from tests.support.forging import again
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, Entry, Roster, Study, cohort_id
from veilsum.protocol.study import DAY_S
from veilsum.protocol.tags import Tag, hash_fields

VECTORS = Path(__file__).parents[1] / "vectors" / "studies.json"
OTHER = SigningKey(b"\x66" * 32)
CLASSES = ["benign", "malignant"]
SHAPE = Shape(3, {"dim": 2, "classes": CLASSES})
EXPIRES = '"expires":2000000'
"""When the studies of the vectors expire."""


@dataclass(frozen=True)
class Invited:
    """What an invitation holds, and the cohort's period."""

    roster: bytes
    study: bytes
    roster_hash: bytes
    study_hash: bytes
    period: str = "period-0"


Make = Callable[[Others], Invited]


def invite(roster: Roster, study: Study, period: str = "period-0") -> Invited:
    return Invited(roster.to_bytes(), study.to_bytes(), roster.hash, study.hash, period)


@dataclass
class Invitation(Doctoring):
    """An invitation to a cohort that only the client is shown."""

    rule: str
    name: str
    make: Make

    async def answer(self, asked: Asked, play: Play) -> Answer | None:
        federation = play.federation
        party = federation.party
        made: Invited = play.memory.get(self.name) or self.make(party)
        play.memory[self.name] = made
        cohort = cohort_id(made.roster_hash, party.counter, made.study_hash, made.period, NO_CONTEXT).hex()
        if asked.path == f"{party.where}/roster" and made.roster != party.roster.to_bytes():
            return Answer.octets(made.roster, Answer(200, {}, b""), is_false=True)
        if asked.path == f"{party.where}/runs":
            runs = (await federation.server.client.get(asked.path)).json()
            runs["runs"] = [self._named(run, cohort, made) for run in runs["runs"]]
            return Answer.json(runs)
        if asked.method == "GET" and asked.path.startswith(f"/v1/cohorts/{cohort}"):
            invitation = (await federation.server.client.get(f"/v1/cohorts/{party.cohort}/invitation")).json()
            invitation["cohort"] = self._named(invitation["cohort"], cohort, made)
            invitation |= {"roster": made.roster.hex(), "study": made.study.hex(), "card": None}
            if asked.path.endswith("/invitation"):
                return Answer.json(invitation, is_false=True)
            return Answer.json(invitation["cohort"])
        return None

    def _named(self, view: dict[str, Any], cohort: str, made: Invited) -> dict[str, Any]:
        try:
            notes = json.loads(Study.from_bytes(made.study).content)["notes"]
        except (ValueError, LookupError):
            notes = {"name": "unreadable", "version": 1}
        number = "version" if "round" in view else "study_version"
        named = {
            "cohort": cohort,
            "study": made.study_hash.hex(),
            "name": notes["name"],
            "period": made.period,
        }
        return {**view, **named, number: notes["version"]}


def signed(party: Others, content: bytes, key: SigningKey | None = None, **changes: Any) -> Study:
    values = {"federation": party.admin.public, "content": content, **changes}
    return Study.make_signed(key or party.admin, **values)


def of_study(change: Callable[[Others], Study]) -> Make:
    return lambda party: invite(party.roster, change(party))


def of_roster(change: Callable[[Others], Roster]) -> Make:
    return lambda party: invite(change(party), party.study)


def of_notes(**notes: Any) -> Make:
    """Invite to the honest study with other notes; times are seconds from now."""

    def change(party: Others) -> Study:
        now_s = int(time.time())
        if "expires" in notes:
            return party.make_study(now_s, **{**notes, "expires": now_s + notes["expires"]})
        return party.make_study(now_s, **notes)

    return of_study(change)


def roster_again(party: Others, key: SigningKey, **changes: Any) -> Roster:
    return again(party.roster, key, **changes)


def rosters_and_studies() -> Iterator[Part]:
    """Return the parts of the families ROSTER and STUDY. The honest roster has number 5, and comes back."""

    def lengthened(party: Others) -> Roster:
        return roster_again(
            party, COORDINATOR, members=(*party.roster.members, Entry("sybil", OTHER.public)), number=6
        )

    later = {"name": "seen", "version": 2}
    doctorings = [
        Invitation(
            "STUDY-7", "a study that the owner has not approved", of_notes(**later, purpose="unapproved")
        ),
        Invitation("STUDY-6", "an older version than one that was seen", of_notes(name="seen", version=1)),
        Invitation("STUDY-6", "other bytes of a version that was seen", of_notes(**later)),
    ]
    approves = approval_of_notes("seen")
    rosters = [
        Invitation("STUDY-7", "another study that the owner has not approved", of_notes(name="unapproved")),
        Invitation(
            "ROSTER-3",
            "a roster older than one that was seen",
            of_roster(lambda p: roster_again(p, p.admin, number=4)),
        ),
        Invitation(
            "ROSTER-4",
            "another roster of the same number",
            of_roster(lambda p: roster_again(p, p.admin, name="other")),
        ),
    ]
    yield Part("invitations: a roster that was seen", SHAPE, "member-0", rosters, is_sequence=True)
    yield Part(
        "invitations: a study that was seen",
        SHAPE,
        "member-0",
        doctorings,
        approves=(approves,),
        is_sequence=True,
    )
    doctorings = [
        Invitation("ROSTER-1", "a roster of another federation", of_roster(lambda p: roster_again(p, OTHER, federation=OTHER.public))),
        Invitation("ROSTER-2", "a roster that the coordinator extended", of_roster(lengthened)),
        Invitation("STUDY-1", "a study of another federation", of_study(lambda p: signed(p, p.study.content, federation=OTHER.public))),
        Invitation("STUDY-2", "a study that the coordinator signed", of_study(lambda p: signed(p, p.study.content, COORDINATOR))),
        Invitation("STUDY-3", "a study that is not canonical", of_study(lambda p: signed(p, p.study.content.replace(b":", b": ", 1)))),
        Invitation("STUDY-5", "a study that has expired", of_notes(name="expired", expires=-60)),
        Invitation("STUDY-5", "a study that expires in 91 days", of_notes(name="late", expires=91 * DAY_S)),
    ]  # fmt: skip
    renewed = tuple(approval_of_notes(name) for name in ("expired", "late"))
    yield Part("invitations: rosters and studies", SHAPE, "member-0", doctorings, approves=renewed)


def approval_of_notes(name: str) -> str:
    """Return the approval of the honest study under another name."""
    return make_party(SHAPE).make_content(time.time(), name=name).approval.hex()


def roster_parts() -> Iterator[Part]:
    """Rosters with a higher number than the honest one, after which the client waits for a newer one."""

    def revoked(party: Others) -> Invited:
        return invite(roster_again(party, party.admin, revoked=(party.study.hash,), number=6), party.study)

    def other_key(party: Others) -> Roster:
        entries = [
            replace(each, key=OTHER.public) if each.member == "member-0" else each
            for each in party.roster.members
        ]
        return roster_again(party, party.admin, members=tuple(entries), number=6)

    for doctoring in (
        Invitation("STUDY-4", "a study that the roster revokes", revoked),
        Invitation("ROSTER-5", "a roster that lists another key for the client", of_roster(other_key)),
    ):
        yield Part(f"invitations: {doctoring.name}", SHAPE, "member-0", [doctoring], is_lively=False)


def contents() -> Part:
    """Return the part of the family CONTENT: the studies that the vectors refuse, signed, and approved by their digest."""
    expires, doctorings, approves = int(time.time()) + 80 * DAY_S, [], dict[str, None]()
    for case in json.loads(VECTORS.read_text())["cases"]:
        if not case.get("rule", "").startswith("CONTENT"):
            continue
        content = (
            case["input"]["content"].replace(EXPIRES, f'"expires":{expires}').encode("utf-8", "surrogatepass")
        )
        if (approval := approval_of(content)) is not None:
            approves[approval] = None
        name = case["name"].removeprefix("refused: ")
        make = of_study(lambda party, content=content: signed(party, content))  # type: ignore[misc]  # bound now
        doctorings.append(Invitation(case["rule"], name, make))
    return Part("invitations: studies' contents", SHAPE, "member-0", doctorings, approves=tuple(approves))


def approval_of(content: bytes) -> str | None:
    """Return the approval of a content that breaks a rule, as far as it can be read."""
    try:
        values = json.loads(content)
        values["notes"] = {k: v for k, v in values["notes"].items() if k not in {"version", "expires"}}
        return hash_fields(Tag.APPROVAL, rfc8785.dumps(values)).hex()
    except (ValueError, LookupError, TypeError, rfc8785.CanonicalizationError):
        return None


@dataclass
class UnfitData(Doctoring):
    """The honest invitation, to a client whose data must not be summed."""

    rule: str
    name: str

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        if not asked.path.endswith("/invitation"):
            return None
        return replace(answer, is_false=True)


class ForgedCard(Doctoring):
    """An invitation with a card of the client's that its key has not signed."""

    rule, name = "RESTORE-1", "a newest card that another key signed"

    async def change(self, asked: Asked, answer: Answer, play: Play) -> Answer | None:
        if not asked.path.endswith("/invitation"):
            return None
        federation: Federation = play.federation
        said = next(each for each in federation.tap.messages if each.source in federation.others)
        card = again(said.message.card, OTHER, member=play.part.client, serial=0)  # type: ignore[attr-defined]  # an Enrolment
        return Answer.json({**json.loads(answer.body), "card": card.to_bytes().hex()}, is_false=True)


def invitations() -> Iterator[Part]:
    """Return every part that ends before the client sends a card."""
    yield from rosters_and_studies()
    yield from roster_parts()
    yield contents()
    for rule, name, shape in (
        ("SELECT-3", "fewer rows than the study asks for", replace(SHAPE, client_rows=5)),
        ("SELECT-4", "rows with one feature that is not zero", replace(SHAPE, is_bare=True)),
        ("ID-4", "an id of 1,025 bytes", replace(SHAPE, more_ids=("x" * 1_025,))),
    ):
        yield Part(f"invitations: {name}", shape, "member-0", [UnfitData(rule, name)], is_lively=False)
    yield Part("invitations: a forged card", SHAPE, "member-0", [ForgedCard()])
