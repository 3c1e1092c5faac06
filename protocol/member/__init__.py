"""A member's side of the secure sum: one class a phase, each a value that is stored before it speaks."""

from protocol.errors import Misuse
from protocol.member.base import MemberPhase, Step
from protocol.member.checked import Checked
from protocol.member.closed import Closed
from protocol.member.enrolled import Enrolled
from protocol.member.history import History
from protocol.member.opened import Opened, Uploaded
from protocol.member.ready import Ready
from protocol.member.voted import Voted

PHASES: dict[int, type[MemberPhase]] = {
    phase.kind: phase for phase in (Enrolled, Ready, Opened, Uploaded, Checked, Voted, Closed)
}


def load_phase(data: bytes) -> MemberPhase:
    """The phase that `to_bytes` stored; Misuse where the kind is none of ours."""
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
