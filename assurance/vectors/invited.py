"""What a member remembers: invitations with rosters, studies and its newest card, its owner's limits, and sums that a folder forgot."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assurance.vectors.ledger_player import (
    ADMIN,
    COORDINATOR,
    ME,
    MEMBERS,
    NOW_S,
    LedgerPlayer,
    drive,
    hidden,
    refusal,
)
from assurance.vectors.ledgers import DATA, NOISE, NOISY, QUESTION
from assurance.vectors.rounds import played
from assurance.vectors.stage import member_at
from client_sdk.effects import Request, Response
from client_sdk.environment import Environment
from client_sdk.identity import Identity
from client_sdk.member import Conversations
from client_sdk.policy import Policy
from tests.support.forging import again
from tests.support.simulator import simulated_content, simulated_roster
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Chain,
    KeyCard,
    Link,
    Message,
    Opening,
    Roster,
    Study,
)
from veilsum.protocol.study import DAY_S, read_content

Json = dict[str, Any]
OWN = SigningKey(b"\x0e" * 32)
KEYS = {member: SigningKey(bytes([index]) * 32) for index, member in enumerate(MEMBERS)} | {ME: OWN}
ROSTER = simulated_roster(
    ADMIN, COORDINATOR.public, {member: key.public for member, key in KEYS.items()}, number=5
)
MONTHS_S = 90 * DAY_S


def study(
    expires_s: int = NOW_S + 80 * DAY_S, question: Mapping[str, Any] | None = None, **notes: Any
) -> Study:
    content = simulated_content({**QUESTION, **(question or {})}, expires_s, {"name": "study", **notes})
    return Study.make_signed(ADMIN, federation=ADMIN.public, content=content.to_bytes())


def card(serial: int, key: SigningKey = OWN) -> KeyCard:
    """Return a card of another cohort."""
    values = {
        "cohort": bytes(32),
        "member": ME,
        "x25519_key": b"\x09" * 32,
        "mlkem_key_hash": bytes(32),
        "nonce": bytes(32),
    }
    return KeyCard.make_signed(key, **values, expires_s=NOW_S, serial=serial)


def invite(shown: Study, roster: Roster = ROSTER, *, newest: KeyCard | None = None, **more: Any) -> Json:
    seen = {
        "roster": roster.to_bytes().hex(),
        "study": shown.to_bytes().hex(),
        "card": newest and newest.to_bytes().hex(),
    }
    return seen | {"period": "p1", "counter": "0", "now_s": NOW_S, **more}


HONEST, LATER = study(), study(version=2)
OTHERS_KEY = again(ROSTER, ADMIN, members=tuple(
    each if each.member != ME else type(each)(ME, COORDINATOR.public) for each in ROSTER.members
))  # fmt: skip
PLAYS: dict[str, tuple[tuple[str, list[Json], Json], ...]] = {
    "ROSTER-3": (("a roster older than one that was seen", [invite(HONEST), invite(HONEST, again(ROSTER, ADMIN, number=4), counter="1")], {}),),
    "ROSTER-4": (("another roster of a number that was seen", [invite(HONEST), invite(HONEST, again(ROSTER, ADMIN, name="other"), counter="1")], {}),),
    "ROSTER-5": (
        ("a roster with another key for the member", [invite(HONEST, OTHERS_KEY)], {}),
        ("a roster without the member", [invite(HONEST, again(ROSTER, ADMIN, members=ROSTER.members[1:]))], {}),
    ),
    "STUDY-5": (
        ("a study that has expired", [invite(HONEST, now_s=NOW_S + 80 * DAY_S)], {}),
        ("a study that expires after more than 90 days", [invite(study(NOW_S + MONTHS_S + 1))], {}),
    ),
    "STUDY-6": (
        ("an older version than one that was seen", [invite(LATER), invite(HONEST)], {}),
        ("other bytes of a version that was seen", [invite(HONEST), invite(study(purpose="other"))], {}),
        ("an older version than one that was seen and not approved", [invite(study(version=2, purpose="other")), invite(HONEST)], {}),
    ),
    "STUDY-7": (("a study that the owner has not approved", [invite(study(purpose="other"))], {}),),
    "POLICY-1": (
        ("a study of more ε than the owner allows", [invite(study(question=NOISY))], {"epsilon_max": 0.5}),
        ("an exact study to an owner with a limit for ε", [invite(HONEST)], {"epsilon_max": 8.0}),
    ),
    "POLICY-2": (("a chain beyond the budget of a fresh record", [invite(study(question={**NOISY, "noise": {**NOISE, "epsilon": 8.0}}))], {"mu_budget": 1.0}),),
    "RESTORE-1": (
        ("a newest card that another key signed", [invite(HONEST, newest=card(0, COORDINATOR))], {}),
    ),
    "RESTORE-2": (
        ("a newest card that the folder does not know", [invite(HONEST, newest=card(1))], {}),
        ("a card with the serial of its newest and other bytes", [invite(HONEST), invite(HONEST, newest=card(1), counter="1", period="p2")], {}),
    ),
}  # fmt: skip
"""By rule: plays, each with its invitations and the owner's limits. The last invitation breaks the rule."""
HONEST_PLAYS: tuple[tuple[str, list[Json], Json], ...] = (
    ("renewed by a later version", [invite(HONEST), invite(LATER, counter="1")], {}),
    ("the last second of 90 days", [invite(study(NOW_S + MONTHS_S))], {}),
    ("within all limits", [invite(study(question=NOISY))], {"epsilon_max": 1.0, "mu_budget": 0.3}),
    (
        "an older card of the member",
        [invite(HONEST), invite(HONEST, newest=card(0), counter="1", period="p2")],
        {},
    ),
)
UNAPPROVED = "other"
"""A purpose of studies that the owner has not approved."""


def plays() -> Iterator[Json]:
    """Yield each play as a case without its output."""
    for rule, told in (*PLAYS.items(), ("", HONEST_PLAYS)):
        for name, steps, limits in told:
            contents = [
                read_content(Study.from_bytes(bytes.fromhex(each["study"])).content) for each in steps
            ]
            approved = {each.approval.hex() for each in contents if each.notes.purpose != UNAPPROVED}
            given = {
                "member": ME, "identity": OWN.seed.hex(), "federation": ADMIN.public.hex(),
                "policy": {"approved": sorted(approved), "mu_budget": 2.0, **limits}, "data": DATA["a"], "steps": steps,
            }  # fmt: skip
            yield (
                {"name": name}
                | ({"rule": rule} if rule else {})
                | {"function": "invitations", "input": given}
            )


def play_invitations(case: Mapping[str, Any]) -> Json:
    """Show a member one invitation after another; return its answers, and the cause if the last one was refused."""
    given = {
        "studies": {},
        "watch": [],
        "mu_budget": case["policy"]["mu_budget"],
        "data": {"all": case["data"]},
    }
    with TemporaryDirectory() as place, closing(LedgerPlayer(Path(place), given, case)) as player:
        steps: list[Json] = [dict(refusal(lambda step=step: player.invite(step))) for step in case["steps"]]  # type: ignore[misc]  # called at once
    return {"steps": steps} | {name: steps[-1][name] for name in ("cause", "parties") if name in steps[-1]}


# A folder that has forgotten a sum

SHOWN = ("cards", "opening", "closing")


def missed_sums() -> Iterator[Json]:
    """Yield cases of a link that a member of a round does not know, and of what the coordinator shows of its attempt."""
    document = played("complete").document
    attempt = document["attempts"][0]
    for name, rule, member, has, unshown, change in (
        ("a set that holds the member", "RESTORE-4", "member-0", "card", (), {}),
        ("a set that holds the member, which has the keys of its pairs", "RESTORE-4", "member-0", "keys", ("cards",), {}),
        ("a set without the member", "", "member-4", "card", (), {}),
        ("no cards are shown", "RESTORE-3", "member-4", "card", ("cards",), {}),
        ("no opening is shown", "RESTORE-3", "member-4", "card", ("opening",), {}),
        ("no closing is shown", "RESTORE-3", "member-4", "keys", ("cards", "closing"), {}),
        ("the opening is another attempt's", "RESTORE-3", "member-4", "card", (), {"context": bytes([2] * 32)}),
        ("the closing gives another link", "RESTORE-3", "member-4", "card", (), {"survivors": bytes([1] * 32)}),
    ):  # fmt: skip
        cards = first_message(document, document["enrolment"], Cards, member)
        shown: Json = {"cards": cards}
        shown |= {
            what: first_message(document, attempt["log"], form)
            for what, form in (("opening", Opening), ("closing", Certificate))
        }
        link = replace(Link.from_bytes(bytes.fromhex(attempt["link"])), **change)  # type: ignore[arg-type]  # of its fields
        given: Json = {
            "round": "complete",
            "member": member,
            "has": has,
            "chain": Chain(ADMIN.public, (link,)).to_bytes().hex(),
        }
        given |= {what: None if what in unshown else shown[what] for what in SHOWN}
        yield {"name": name} | ({"rule": rule} if rule else {}) | {"function": "missed", "input": given}


def first_message(document: Json, log: list[list[Any]], form: type[Message], member: str = "") -> int:
    """Return the number of the first message of this type in a log, to this member or to any."""
    kind = f"{form.kind:02x}"
    found: int = next(at for _, to, at in log if member in {"", to} and document["messages"][at][2:4] == kind)
    return found


def show_missed(case: Mapping[str, Any]) -> Json:
    """Show a member of a round a link that it does not know. Returns nothing if it goes on."""
    document, member = played(case["round"]).document, case["member"]
    key, phase = member_at(case["round"], member, -1 if case["has"] == "card" else 0, 0)
    with TemporaryDirectory() as place:
        made = Identity.create(Path(place) / member, member, held_out=0.0)
        policy = Policy(Roster.from_bytes(bytes.fromhex(document["roster"])).federation)
        environment = Environment(now_s=lambda: float(document["now_s"]))
        with closing(
            Conversations(Identity(made.folder, member, key), policy, environment=environment)
        ) as own:
            (link,) = Chain.from_bytes(bytes.fromhex(case["chain"])).links
            own.session.store.store_phase(link.cohort, phase, "")

            def answer(request: Request) -> Response:
                (what,) = (
                    name
                    for name, path in zip(SHOWN, ("/manifest/", "/opening", "/closing"), strict=True)
                    if path in request.path
                )
                if case[what] is None:
                    return hidden(Cause.NOT_FOUND)
                return Response(200, {}, bytes.fromhex(document["messages"][case[what]]))

            drive(own.session.check_missed([link]), answer)
    return {}
