"""A member stores nothing of a message that it refuses, and takes the honest one afterwards.

Members of recorded rounds take part through the SDK. At each place they are shown every false message that `attacks.json` has for it, in
the answer to each request by which it could reach them. All that they have stored is compared byte for byte.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from assurance.attacks.recorded_member import RecordedMember, without_data
from assurance.vectors.results import honest, signed
from assurance.vectors.rounds import played
from assurance.vectors.stage import ENROLMENT, log_of
from client_sdk.conversation import MemberStanding
from client_sdk.database import StateDatabase
from client_sdk.errors import NotEnrolled, PeerFault
from client_sdk.result import Result
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Enrolled, EnrolmentPhase, Lapsed, Paired
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Ciphertexts,
    Disclosure,
    Erasure,
    ErasureRequest,
    Evictions,
    Lost,
    Message,
    Opening,
    Refusal,
    VoidRequest,
    parse_message,
)
from veilsum.protocol.rest import round_name

Row: TypeAlias = dict[str, Any]
Reason: TypeAlias = tuple[str, tuple[str, ...]]
"""Cause and parties of a refusal."""
Way: TypeAlias = tuple[str, Callable[[], PeerFault | NotEnrolled | None], Reason | None]
"""A false message in the answer to a request: its name, what shows it, and why the member refuses it."""

FILE = Path(__file__).parents[1] / "vectors" / "attacks.json"
FETCHED_ALONE = "RESULT-9"
"""The rule that a member keeps only if it fetches the transcript, which none does here."""
ROWS: tuple[Row, ...] = tuple(
    each for each in json.loads(FILE.read_text("utf-8"))["attacks"] if each["rule"] != FETCHED_ALONE
)
ENDS: dict[type[Message], str] = {Certificate: "done", Erasure: "erased", Lost: "lost"}
"""Closings, and the state of a round that has ended so."""
ELSEWHERE: Reason = Cause.WRONG_CONTEXT.value, ("coordinator",)
"""Why a member refuses the opening of another round than it asked for."""
UNFINISHED: Reason = Cause.WRONG_SEQUENCE.value, ()
"""Why it enters no round before another one has ended."""
LAPSED: Reason = NotEnrolled.__name__, ()
"""Why it takes nothing in a cohort for which its keys have lapsed."""
EXPIRED: Reason = Cause.TERMS_EXPIRED.value, ()
"""Why it answers nothing in a round whose keys it has erased."""


def data_of(row: Row) -> bytes:
    """Return a row's false message."""
    if "message" in row:
        return bytes.fromhex(row["message"])
    data = bytes.fromhex(played(row["round"]).document["messages"][row["honest"]])
    for at, removed, put in reversed(row["cuts"]):
        data = data[:at] + bytes.fromhex(put) + data[at + removed :]
    return data


def kind_of(row: Row) -> str:
    """Say what a row shows, or to whom."""
    if row.get("to") == "coordinator":
        return "to the coordinator"
    if "to" in row:
        return Message.forms[data_of(row)[1]].__name__
    if "record" in row:
        return "record"
    if "message" in row:
        return "bytes"
    return "to auditors" if row["survives"] == "transcripts doctored" else "several messages"


def receiver_of(row: Row) -> str:
    """Return the member that a row is shown to."""
    return "member-0" if "record" in row else row.get("to", "")


BYTES = tuple(row for row in ROWS if "message" in row and not {"to", "record"} & row.keys())
WALKS = sorted({(row["round"], row["to"]) for row in ROWS if row.get("to", "coordinator") != "coordinator"})
WALK_OF_BYTES = ("count", "member-0")
"""The walk that shows `BYTES` too, in each phase."""


def rows_of(round_: str, member: str) -> list[Row]:
    """Return the rows that a walk shows."""
    return [row for row in ROWS if (row.get("round"), receiver_of(row)) == (round_, member)]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(StateDatabase, "synchronous", "OFF")


def test_every_row_is_walked_unless_it_reaches_no_member_in_one_message() -> None:
    kinds = Counter(map(kind_of, ROWS))
    walked = Counter(map(kind_of, (*(row for walk in WALKS for row in rows_of(*walk)), *BYTES)))
    assert walked.keys() == {
        "Cards", "Ciphertexts", "Opening", "Deliveries", "Freeze", "VoidRequest", "Certificate", "Evictions", "Disclosure", "ErasureRequest", "Erasure",
        "Lost", "record", "bytes",
    }  # fmt: skip
    # Tests beside this one play attacks of several messages, and replay transcripts.
    assert (kinds - walked).keys() == {"to the coordinator", "to auditors", "several messages"}


@pytest.mark.parametrize(("round_", "member"), WALKS)
def test_a_refusal_stores_nothing(tmp_path: Path, round_: str, member: str) -> None:
    rows, phases = rows_of(round_, member), set[type]()
    with without_data():
        walking = RecordedMember.start(tmp_path / "member", round_, member)
        for number in range(ENROLMENT, max(row["attempt"] for row in rows) + 1):
            log = log_of(walking.document, number)
            for place in range(len(log) + 1):
                walking.enter(number)
                here = [r for r in rows if (r["attempt"], r.get("after", len(log))) == (number, place)]
                refuse(walking, (way for row in here if "now_s" not in row for way in ways_of(walking, row)))
                for row in (row for row in here if "now_s" in row):
                    other = walking.copy_to(tmp_path / row["name"], row["now_s"])
                    refuse(other, ways_of(other, row))
                    other.close()
                if (round_, member) == WALK_OF_BYTES and type(walking.phase) not in phases:
                    refuse(walking, (way for row in BYTES for way in ways_of_bytes(walking, row)))
                    phases.add(type(walking.phase))
                if place < len(log) and log[place][1] == member:
                    walking.take(number, log[place][2])
                    assert {each.hex() for each in walking.sent} <= {*walking.document["messages"]}
            if any("record" in row and row["attempt"] == number for row in rows):
                record = json.dumps(signed(round_, honest(round_, number)))
                assert walking.take_part("done", {"record": record}) is None
                assert Result.saved_in(walking.session.store.result_folder(walking.round_id))
        walking.close()


def refuse(walking: RecordedMember, ways: Iterator[Way]) -> None:
    """Show a member false messages. Each must be refused for its reason, and nothing more may be stored then."""
    before = walking.stored()
    for way, shown, reason in ways:
        assert reason_of(shown(), walking.sent) == reason, way
        assert walking.stored() == before, way


def reason_of(fault: PeerFault | NotEnrolled | None, sent: list[bytes]) -> Reason | None:
    """Return why a member refuses: its fault, or else the Refusal that it has signed; None if it refuses nothing."""
    if isinstance(fault, NotEnrolled):
        return LAPSED
    if fault is not None:
        return fault.cause.value, fault.parties
    refusal = parse_message(sent[0]) if sent else None
    return (refusal.cause, ()) if isinstance(refusal, Refusal) else None


def ways_of(walking: RecordedMember, row: Row) -> Iterator[Way]:
    """Yield the requests by which a row's message reaches a member."""
    name, reason = row["name"], (row["cause"], tuple(row["parties"]))
    if "record" in row:
        record = json.dumps(signed(row["round"], honest(row["round"], row["attempt"])) | row["record"])
        certificate = walking.coordinator.closings[walking.attempt.context.hex()]
        yield f"{name}, fetched", partial(walking.take_part, "done", {"record": record}), reason
        reveal = partial(walking.take_part, "revealing", {"request": certificate, "answers": record})
        yield f"{name}, answering a reveal", reveal, reason
        return
    data = data_of(row)
    form = Message.forms[data[1]]
    if form is Cards or form is Ciphertexts:
        yield from ways_of_forming(walking, name, data, reason)
    elif form is Opening:
        yield from ways_of_opening(walking, name, data, reason)
    elif form is Disclosure and walking.attempt.spec.is_disclosed:
        yield f"{name}, fetched", partial(walking.take_part, "done", {"disclosure": data}), reason
    else:
        erased = walking.conversation(walking.round_id).standing is MemberStanding.LEFT
        expired = erased and form is not ErasureRequest and misread(form, data) is None
        asked = EXPIRED if expired else reason
        yield f"{name}, requested", partial(walking.take_part, "revealing", {"request": data}), asked
    if form in ENDS:
        closing = partial(walking.take_part, ENDS[form], {"request": data, "closing": data})
        yield f"{name}, closing", closing, reason
        yield f"{name}, closing an open attempt", partial(walking.settle, data), reason


def ways_of_forming(walking: RecordedMember, name: str, data: bytes, reason: Reason) -> Iterator[Way]:
    """Before it has paired a member asks for cards; then for ciphertexts, in place of which it may be shown other cards."""
    anywhere = {"cards": data, "pairing": data}
    match walking.phase:
        case Enrolled():
            asked = reason if data[1:2] == bytes([Cards.kind]) else misread(Cards, data)
            yield f"{name}, answering its card", partial(walking.enrol, {"cards": data}), asked
            yield f"{name}, of a manifest", partial(walking.enrol, {"cards": data}, "pairing"), asked
        case Paired():
            yield (
                f"{name}, answering its pairing",
                partial(walking.enrol, {"pairing": data}, "pairing"),
                reason,
            )
            yield f"{name}, asked for", partial(walking.enrol, {"pairing": data}, "formed"), reason
        case Lapsed():
            for state in ("pairing", "formed"):
                yield f"{name}, {state}", partial(walking.enrol, anywhere, state), LAPSED
        case _:
            yield f"{name}, not asked for", partial(walking.enrol, anywhere, "formed"), None


def ways_of_opening(walking: RecordedMember, name: str, data: bytes, reason: Reason) -> Iterator[Way]:
    """Only the opening of the round that a member asks for is looked at, and only if no other round is open."""
    attempt = walking.attempt
    if isinstance(walking.phase, EnrolmentPhase):
        early = partial(walking.take_part, "collecting", {"request": data, "opening": data})
        yield f"{name}, not asked for", early, None
        return
    if misread(Opening, data) is not None:
        yield name, partial(walking.take_part, "collecting", {"request": data}), reason
        return
    opened = Attempt(attempt.roster, attempt.study, attempt.manifest, Opening.from_bytes(data))
    round_id = round_name(opened.context)
    if round_id != walking.round_id:
        yield f"{name}, elsewhere", partial(walking.take_part, "collecting", {"request": data}), ELSEWHERE
    if Result.saved_in(walking.session.store.result_folder(round_id)):
        return  # it asks nothing of that round any more
    if isinstance(walking.phase, Attempting):
        reason = UNFINISHED
    yield name, partial(walking.take_part, "collecting", {"request": data}, round_id), reason
    asked = VoidRequest(attempt.context, "cancelled").to_bytes()
    late = partial(walking.take_part, "voiding", {"request": asked, "opening": data}, round_id)
    yield f"{name}, late", late, reason


def ways_of_bytes(walking: RecordedMember, row: Row) -> Iterator[Way]:
    """Yield every request that is answered by a message where the member stands."""
    name, data, reason = row["name"], data_of(row), (row["cause"], tuple(row["parties"]))
    if isinstance(walking.phase, EnrolmentPhase):
        because = reason if isinstance(walking.phase, Paired) else misread(Cards, data)
        yield from ((way, show, because) for way, show, _ in ways_of_forming(walking, name, data, reason))
        return
    yield f"{name}, requested", partial(walking.take_part, "revealing", {"request": data}), reason
    standing = walking.conversation(walking.round_id).standing
    if standing is MemberStanding.READY:
        asked = VoidRequest(walking.attempt.context, "cancelled").to_bytes()
        opening = partial(walking.take_part, "voiding", {"request": asked, "opening": data})
        yield f"{name}, opening late", opening, misread(Opening, data)
    elif standing is MemberStanding.ATTEMPTING:
        yield f"{name}, closing", partial(walking.take_part, "done", {"request": data}), reason
        yield f"{name}, closing an open attempt", partial(walking.settle, data), reason
    else:
        for fetched, form in (("evictions", Evictions), ("disclosure", Disclosure)):
            conclude = partial(walking.take_part, "done", {fetched: data})
            yield f"{name}, {fetched} fetched", conclude, misread(form, data)


def misread(form: type[Message], data: bytes) -> Reason | None:
    """Return why these bytes are not a message of this form; None if they are."""
    try:
        form.from_bytes(data)
    except PeerFault as fault:
        return fault.cause.value, fault.parties
    return None
