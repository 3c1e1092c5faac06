"""A helper's side: one class a phase, each a value that is stored before it speaks."""

from protocol.errors import Misuse
from protocol.helpers.helper.base import HelperPhase, Step
from protocol.helpers.helper.checked import Checked
from protocol.helpers.helper.enrolled import Enrolled
from protocol.helpers.helper.opened import Opened
from protocol.helpers.helper.standing import Standing
from protocol.helpers.helper.summing import Adding, SumChunk, Summing
from protocol.helpers.helper.voted import Voted

HELPER_PHASES: dict[int, type[HelperPhase]] = {
    phase.kind: phase for phase in (Standing, Enrolled, Opened, Checked, Voted, Summing)
}


def load_helper(data: bytes) -> HelperPhase:
    """The phase that `to_bytes` stored; Misuse where the kind is none of ours."""
    form = HELPER_PHASES.get(data[1]) if len(data) > 1 else None
    if form is None:
        raise Misuse("the stored bytes are not a helper's phase")
    return form.from_bytes(data)


__all__ = [
    "HELPER_PHASES",
    "Adding",
    "Checked",
    "Enrolled",
    "HelperPhase",
    "Opened",
    "Standing",
    "Step",
    "SumChunk",
    "Summing",
    "Voted",
    "load_helper",
]
