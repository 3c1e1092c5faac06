"""What happened to a round, and where it leads.

Phase and transcript are both folds of the events. A refused message moves no phase, but where it proves its sender false it is an
event too: what it proves, once for each cause and party, so that nobody can fill the disk by it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service import sent
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting, CoordinatorPhase, Freezing, Recovered, Revealing
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import parse
from veilsum.protocol.transcript import Accusation, Transcript


@dataclass(frozen=True)
class Event:
    """Something that happened to a round, as it is stored."""

    at_s: float
    kind: str
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Event {self.kind} {len(self.body)} B>"

    def apply(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        """The phase after this event; PeerFault where the rules forbid it."""
        if self.kind == "message":
            return phase.receive(sent.read(self.body), self.at_s)
        if self.kind in {"chunk", "damaged"}:
            return self._apply_to_chunk(phase)
        if self.kind == "expire":
            return phase.expire(self.at_s)
        if self.kind == "extend":
            return phase.extend(float(self.body))
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

    def note(self, transcript: Transcript, before: CoordinatorPhase, after: CoordinatorPhase) -> Transcript:
        """The transcript after this event led from one phase to the next."""
        if self.kind == "message":
            return transcript.received(parse(self.body), before, after)
        if self.kind == "refused":
            cause, parties, entry = json.loads(self.body)
            return transcript.accusing(Accusation(Cause(cause), tuple(parties), bytes.fromhex(entry)))
        return transcript.moved(before, after)

    def refused(self, transcript: Transcript, fault: PeerFault) -> "Event | None":
        """What is kept of this event although it was refused; None where it proves nothing new to others."""
        if self.kind != "message":
            return None
        found = Accusation.of(parse(self.body), fault)
        if found is None or transcript.accusing(found) is transcript:
            return None
        body = json.dumps([found.cause.value, found.parties, found.entry.hex()])
        return Event(self.at_s, "refused", body.encode())


Decision = Callable[[CoordinatorPhase | None], Event | None]
"""What somebody wants: the event that follows on a phase, if there is one; PeerFault where there can be none."""


@dataclass(frozen=True)
class Transition:
    """An event, and where it leads."""

    event: Event
    after: CoordinatorPhase
    noted: Transcript


def replayed(phase: CoordinatorPhase, noted: Transcript, unseen: Sequence[Event]) -> list[Transition]:
    """Where stored events lead, each of which was accepted once."""
    steps = list[Transition]()
    for event in unseen:
        after = event.apply(phase)
        noted = event.note(noted, phase, after)
        steps.append(Transition(event, after, noted))
        phase = after
    return steps


def folded(
    phase: CoordinatorPhase, noted: Transcript, decisions: Sequence[Decision]
) -> tuple[list[Exception | None], list[Transition]]:
    """The next events, up to one that leads to another phase, and what came of as many decisions: None, or why it is refused."""
    faults, steps = list[Exception | None](), list[Transition]()
    for decide in decisions:
        event, after, fault = _decided(decide, phase, noted)
        faults.append(fault)
        if event is None:
            continue
        noted = event.note(noted, phase, after)
        steps.append(Transition(event, after, noted))
        if after.name != phase.name:
            break
        phase = after
    return faults, steps


def refusals(decisions: Sequence[Decision], over: PeerFault) -> list[Exception | None]:
    """What comes of decisions after the end: no event follows on it."""
    faults = list[Exception | None]()
    for decide in decisions:
        try:
            faults.append(None if decide(None) is None else over)
        except PeerFault as fault:
            faults.append(fault)
        except Exception as error:  # noqa: BLE001 - as in `_decided`
            faults.append(error)
    return faults


def _decided(
    decide: Decision, phase: CoordinatorPhase, noted: Transcript
) -> tuple[Event | None, CoordinatorPhase, Exception | None]:
    """An event to keep, if there is one; the phase after it; and why what was wanted is refused."""
    event = None
    try:
        event = decide(phase)
        after = phase if event is None else event.apply(phase)
    except PeerFault as fault:
        return event.refused(noted, fault) if event is not None else None, phase, fault
    except Exception as error:  # noqa: BLE001 - a defect that one message finds is not for the others to suffer
        return None, phase, error
    return (None if after is phase else event), after, None


def asks_anew(before: CoordinatorPhase, after: CoordinatorPhase) -> bool:
    """Whether the second phase, which follows the first, asks any member something new.

    That is another phase, a chunk once more, one more dealer that is to be left out, or a decryptor that has its boxes now and may sign.
    Not that the seeds are rebuilt: whoever reveals was shown the certificate, and hears of the round's end.
    """
    if isinstance(before, Revealing) and isinstance(after, Recovered):
        return False
    if isinstance(before, Collecting) and isinstance(after, Collecting):
        return after.whole_count < before.whole_count
    return before.name != after.name or _asked_for(before) != _asked_for(after)


def _asked_for(phase: CoordinatorPhase) -> tuple[int, tuple[str, ...]]:
    """What changes what somebody is asked, beside the phase itself."""
    late = len(phase.receipts) if isinstance(phase, Freezing | Revealing) else 0
    return late, phase.evicted if isinstance(phase, Revealing) else ()
