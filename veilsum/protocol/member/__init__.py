"""A member's side of the secure sum: one immutable class per phase, stored before its messages are sent."""

from veilsum.protocol.member.attempting import Checked, Closed, Opened, Uploaded, Voted
from veilsum.protocol.member.base import MemberPhase, Step, load_phase
from veilsum.protocol.member.enrolled import Enrolled, EnrolmentPhase, Lapsed, Paired
from veilsum.protocol.member.history import History
from veilsum.protocol.member.ready import Ready

__all__ = [
    "Checked",
    "Closed",
    "Enrolled",
    "EnrolmentPhase",
    "History",
    "Lapsed",
    "MemberPhase",
    "Opened",
    "Paired",
    "Ready",
    "Step",
    "Uploaded",
    "Voted",
    "load_phase",
]
