"""A member's side of the secure sum: one immutable class per phase, stored before its messages leave."""

from veilsum.protocol.errors import Misuse
from veilsum.protocol.member.attempting import Checked, Opened, Uploaded, Voted
from veilsum.protocol.member.base import MemberPhase, Step
from veilsum.protocol.member.closed import Closed
from veilsum.protocol.member.enrolled import Enrolled
from veilsum.protocol.member.history import History
from veilsum.protocol.member.ready import Ready

PHASES: dict[int, type[MemberPhase]] = {
    phase.kind: phase for phase in (Enrolled, Ready, Opened, Uploaded, Checked, Voted, Closed)
}


def load_phase(data: bytes) -> MemberPhase:
    """Load a phase stored by `to_bytes`; Misuse for an unknown kind."""
    form = PHASES.get(data[1]) if len(data) > 1 else None
    if form is None:
        raise Misuse("the stored bytes are not a member's phase")
    return form.from_bytes(data)


__all__ = [
    "Checked",
    "Closed",
    "Enrolled",
    "History",
    "MemberPhase",
    "Opened",
    "Ready",
    "Step",
    "Uploaded",
    "Voted",
    "load_phase",
]
