"""The parties of a vector's round, brought to a place in its log from inputs and messages alone."""

from functools import cache
from typing import Any

import numpy as np

from assurance.vectors.rounds import played
from tests.support.simulator import of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Collecting, Enrolling, PairingWindow
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import Encapsulate, Encapsulated
from veilsum.protocol.member import Enrolled, MemberPhase, Opened, Paired
from veilsum.protocol.messages import (
    Cards,
    Disclosure,
    Enrolment,
    Erased,
    Erasure,
    ErasureRequest,
    Lost,
    Manifest,
    Message,
    Opening,
    Pairing,
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


def started(document: dict[str, Any], member: str) -> tuple[SigningKey, MemberPhase]:
    drawn = document["members"][member]
    given = {
        name: bytes.fromhex(drawn[name]) for name in ("identity", "x25519_private", "mlkem_seed", "nonce")
    }
    roster = parse_message(bytes.fromhex(document["roster"]))
    cards = parse_message(bytes.fromhex(document["cards"]))
    study = parse_message(bytes.fromhex(document["study"]))
    assert isinstance(roster, Roster)
    assert isinstance(study, Study)
    assert isinstance(cards, Cards)
    key = SigningKey(given["identity"])
    phase, _ = Enrolled.begin_enrolment(
        member,
        roster,
        study,
        key,
        counter=cards.manifest.counter,
        period=cards.manifest.period,
        serial=int(drawn["serial"]),
        now_s=document["now_s"],
        random_bytes=Script(given["x25519_private"], given["mlkem_seed"], given["nonce"]),
    )
    return key, phase


def encapsulation(document: dict[str, Any], member: str, manifest: Manifest) -> Encapsulate:
    """Return an encapsulation that gives what the round recorded: the secrets, and the ciphertexts of the pairing sent."""
    said = (
        parse_message(bytes.fromhex(document["messages"][index])) for _, _, index in document["enrolment"]
    )
    pairings = [message for message in said if isinstance(message, Pairing) and message.member == member]
    place = [pairing.manifest for pairing in pairings].index(manifest.hash)
    secrets, pairing = document["members"][member]["encapsulated"][place], pairings[place]
    made = dict(zip(sorted(secrets), pairing.ciphertexts, strict=True))

    def encapsulate(_mlkem_key: bytes, owner: str) -> Encapsulated:
        return Encapsulated(SecretBytes(bytes.fromhex(secrets[owner])), made[owner])

    return encapsulate


def show(
    document: dict[str, Any], member: str, phase: MemberPhase, key: SigningKey, message: Message
) -> MemberPhase:
    """Let a member of the round take a message; return its next phase."""
    now_s = clock(document, message)
    if isinstance(message, Cards) and isinstance(phase, Enrolled | Paired):
        after, _ = phase.pair(message, key, now_s, encapsulation(document, member, message.manifest))
    else:
        after, _ = phase.receive(message, key, now_s)
    return after


def sealed(phase: Opened, key: SigningKey, given: dict[str, Any]) -> MemberPhase:
    """Let a member that has opened an attempt upload what is given."""
    drawn = [bytes.fromhex(given[name]) for name in ("b_u", "coefficients", "salt")]
    sealing, vector = phase.begin_sealing(Script(*drawn)), np.array(given["vector"], np.int64)
    start = 0
    for index in range(phase.attempt.chunk_count):
        end = start + phase.attempt.chunk_elements(index)
        sealing.mask_next_chunk(vector[start:end])
        start = end
    after, _ = phase.store_upload(*sealing.finish(key))
    return after


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
    key, phase = started(document, member)
    for number in range(ENROLMENT, attempt + 1):
        log = log_of(document, number)
        given = document["attempts"][number]["members"].get(member) if number >= 0 else None
        for _, to, index in log[:at] if number == attempt else log:
            if to == member:
                message = message_of(round_, index)
                phase = show(document, member, phase, key, message)
                if isinstance(phase, Opened) and given:
                    phase = sealed(phase, key, given)
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
        return enrolling_after(
            Enrolling(roster, study, cards.manifest.counter, cards.manifest.period), round_, log
        )
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


def enrolling_after(enrolling: Enrolling, round_: str, log: list[list[Any]]) -> Enrolling | PairingWindow:
    """Return the coordinator after these entries: it enrols, or its members pair under the newest manifest that was shown."""
    window: PairingWindow | None = None
    for _, _, index in log:
        match message_of(round_, index):
            case Enrolment() as enrolment:
                enrolling = enrolling.receive(enrolment, played(round_).document["now_s"])
            case Cards(manifest) if window is None or manifest != window.manifest:
                window = window.leave_out_missing() if window else PairingWindow.begin(enrolling)
                assert window.manifest == manifest
            case Pairing() as pairing:
                assert window
                window = window.receive(pairing)
    return window or enrolling
