"""The parties of a vector's round, brought to a place in its log from inputs and messages alone."""

from functools import cache
from typing import Any

import numpy as np

from assurance.vectors.rounds import played
from tests.support.simulator import of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Collecting, Enrolling
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, MemberPhase, Opened
from veilsum.protocol.messages import (
    Cards,
    Disclosure,
    Erased,
    Erasure,
    ErasureRequest,
    Lost,
    Message,
    Opening,
    Roster,
    Study,
    SurvivorSet,
    parse_message,
)

ENROLMENT = -1
"""Number of the enrolment, in place of an attempt's."""


class Script:
    """Random bytes from a vector file."""

    def __init__(self, *values: bytes) -> None:
        self._values = list(values)

    def __call__(self, count: int) -> bytes:
        value = self._values.pop(0)
        assert len(value) == count
        return value


def started(document: dict[str, Any], member: str) -> tuple[SigningKey, MemberPhase, list[Message]]:
    drawn = document["members"][member]
    given = {
        name: bytes.fromhex(drawn[name]) for name in ("identity", "mask_private", "box_private", "nonce")
    }
    roster = parse_message(bytes.fromhex(document["roster"]))
    cards = parse_message(bytes.fromhex(document["cards"]))
    study = parse_message(bytes.fromhex(document["study"]))
    assert isinstance(roster, Roster)
    assert isinstance(study, Study)
    assert isinstance(cards, Cards)
    key = SigningKey(given["identity"])
    phase, sent = Enrolled.begin_enrolment(
        member,
        roster,
        study,
        key,
        counter=cards.manifest.counter,
        period=cards.manifest.period,
        serial=int(drawn["serial"]),
        random_bytes=Script(given["mask_private"], given["box_private"], given["nonce"]),
    )
    return key, phase, list(sent)


def sealed(
    phase: Opened, key: SigningKey, given: dict[str, Any]
) -> tuple[MemberPhase, tuple[Message, ...], list[str]]:
    drawn = [bytes.fromhex(given[name]) for name in ("b_u", "coefficients", "salt")]
    sealing, vector = phase.begin_sealing(Script(*drawn)), np.array(given["vector"], np.int64)
    chunks, start = [], 0
    for index in range(phase.attempt.chunk_count):
        end = start + phase.attempt.chunk_elements(index)
        chunks.append(bytes(sealing.mask_next_chunk(vector[start:end])).hex())
        start = end
    upload, own = sealing.finish(key)
    return *phase.store_upload(upload, own), chunks


def until(phase: Any, member: str, message: Message) -> Any:
    """Advance the coordinator until it sends the member this message. Deadlines pass, and the admin closes attempts with too few reports."""
    context = phase.attempt.context
    if isinstance(message, Opening | Disclosure) or getattr(message, "context", context) != context:
        return phase  # how a late member learns of an opening, or of the last attempt's end
    while phase.request_for(member) != message and phase.deadline_s is not None:
        phase = phase.pass_deadline(phase.deadline_s)
    if isinstance(message, Lost) and phase.name == "erasing":
        phase = phase.receive(message, 0.0)
    assert phase.request_for(member) == message
    return phase


def clock(document: dict[str, Any], message: Message) -> float:
    """Return the time of a round's message. An end without votes comes after the latest end."""
    late = isinstance(message, ErasureRequest | Erased | Erasure | Lost)
    return float(document["late_s" if late else "now_s"])


def log_of(document: dict[str, Any], attempt: int) -> list[list[Any]]:
    """Return an attempt's log: sender, receiver and message of each entry."""
    if attempt == ENROLMENT:
        return list(document["enrolment"])
    return list(document["attempts"][attempt]["log"])


@cache
def message_of(round_: str, index: int) -> Message:
    """Return one message of a round."""
    return parse_message(bytes.fromhex(played(round_).document["messages"][index]))


def position(round_: str, attempt: int, source: str, to: str, form: type[Message], nth: int = 0) -> int:
    """Return the log index of the nth message of this type from `source` to `to`."""
    found = [
        at
        for at, (by, receiver, index) in enumerate(log_of(played(round_).document, attempt))
        if by == source and receiver == to and isinstance(message_of(round_, index), form)
    ]
    return found[nth]


@cache
def member_at(round_: str, member: str, attempt: int, at: int) -> tuple[SigningKey, MemberPhase]:
    """Return the member's state before that entry of the log."""
    document = played(round_).document
    key, phase, _ = started(document, member)
    for number in range(ENROLMENT, attempt + 1):
        log = log_of(document, number)
        given = document["attempts"][number]["members"].get(member) if number >= 0 else None
        for _, to, index in log[:at] if number == attempt else log:
            if to == member:
                message = message_of(round_, index)
                phase, _ = phase.receive(message, key, clock(document, message))
                if isinstance(phase, Opened) and given:
                    phase, _, _ = sealed(phase, key, given)
    return key, phase


@cache
def coordinator_at(round_: str, attempt: int, at: int) -> Any:
    """Return the coordinator's state before that entry of the log."""
    document = played(round_).document
    cards, roster = (
        parse_message(bytes.fromhex(document["cards"])),
        parse_message(bytes.fromhex(document["roster"])),
    )
    study = parse_message(bytes.fromhex(document["study"]))
    assert isinstance(cards, Cards)
    assert isinstance(roster, Roster)
    assert isinstance(study, Study)
    log = log_of(document, attempt)[:at]
    if attempt == ENROLMENT:
        enrolling = Enrolling(roster, study, cards.manifest.counter, cards.manifest.period)
        for source, _, index in log:
            if source != "coordinator":
                enrolling = enrolling.receive(message_of(round_, index), document["now_s"])  # type: ignore[arg-type]  # a card
        return enrolling
    opening = of(Opening, parse_message(bytes.fromhex(document["attempts"][attempt]["opening"])))
    ended = (coordinator_at(round_, each, len(log_of(document, each))) for each in range(attempt))
    earlier = tuple(
        SurvivorSet(each.certificate.survivors)
        for each in ended
        if each.attempt.context in opening.terms.counts
    )
    phase: Any = Collecting.begin(Attempt(roster, study, cards.manifest, opening), document["now_s"], earlier)
    for source, to, index in log:
        if source == "coordinator":
            phase = until(phase, to, message_of(round_, index))
            continue
        message = message_of(round_, index)
        phase = phase.receive(message, clock(document, message))
        if isinstance(phase, Collecting) and source in phase.announced:
            for chunk in range(phase.attempt.chunk_count):
                phase = phase.chunk_stored(source, chunk, document["now_s"])
    return phase
