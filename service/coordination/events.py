"""A live round's events: what each means for its phase and its transcript.

A refused message does not change the phase. If it proves that its sender cheated, that proof is an event too, once for each cause and
party, so that proofs can't fill the disk.
"""

import json
from dataclasses import dataclass
from typing import get_args

from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting, CoordinatorPhase
from veilsum.protocol.coordinator.statements import Answer
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Lost, Message, Upload, parse_message
from veilsum.protocol.tags import PROTOCOL_VERSION
from veilsum.protocol.transcript import Accusation, Transcript

_EVENT_KINDS = frozenset(form.kind for form in (Upload, *get_args(Answer), Lost))


def read_message(body: bytes) -> Message:
    """Parse a message to the coordinator.

    Raises:
        PeerFault: as `parse`; unknown-message for a kind that only a coordinator sends, which may be as long as a roster.
    """
    if len(body) > 1 and body[0] == PROTOCOL_VERSION and body[1] not in _EVENT_KINDS:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {body[1]} is not a message to a coordinator")
    return parse_message(body)


@dataclass(frozen=True)
class Event:
    """A stored event of a round.

    Attributes:
        message: from a member or the admin, parsed; None for events of another kind than "message".
    """

    at_s: float
    kind: str
    body: bytes = b""
    message: Message | None = None

    def __repr__(self) -> str:
        return f"<Event {self.kind} {len(self.body)} B>"

    def apply_to(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        """Return the phase after this event. Raises PeerFault if the rules forbid it."""
        if self.message is not None:
            return phase.receive(self.message, self.at_s)
        if self.kind in {"chunk", "damaged"}:
            return self._apply_to_chunk(phase)
        if self.kind == "expire":
            return phase.pass_deadline(self.at_s)
        if self.kind == "extend":
            return phase.extend_deadline(float(self.body))
        if self.kind == "refused":
            return phase
        if self.kind == "cancel":
            return phase.cancel(self.at_s, self.body.decode())
        raise Misuse(f"this release knows no event of the kind '{self.kind}': run the newer one")

    def _apply_to_chunk(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        member, index = json.loads(self.body)
        if self.kind == "damaged":
            return phase.chunk_damaged(member, index)
        assert isinstance(phase, Collecting)  # no other takes chunks
        return phase.chunk_stored(member, index, self.at_s)

    def note_in(
        self, transcript: Transcript, before: CoordinatorPhase, after: CoordinatorPhase
    ) -> Transcript:
        """Return the transcript with this event, which led from one phase to the next."""
        if self.message is not None:
            return transcript.note_accepted(self.message, before, after)
        if self.kind == "refused":
            cause, parties, entry = json.loads(self.body)
            return transcript.note_accusation(Accusation(Cause(cause), tuple(parties), bytes.fromhex(entry)))
        return transcript.note_phase_change(before, after)

    def prove_refusal(self, transcript: Transcript, fault: PeerFault) -> "Event | None":
        """Return the event that stores what this refused one proves to others; None if it proves nothing new."""
        if self.message is None:
            return None
        found = Accusation.from_refusal(self.message, fault)
        if found is None or transcript.note_accusation(found) is transcript:
            return None
        body = json.dumps([found.cause.value, found.parties, found.entry.hex()])
        return Event(self.at_s, "refused", body.encode())
