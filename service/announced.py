"""What a live round knows of its members' announcements, whatever its phase."""

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import Collecting, CoordinatorPhase
from protocol.errors import PeerFault
from protocol.messages import Certificate, Upload
from protocol.shelf import Announced


def announced(phase: CoordinatorPhase | None, member: str) -> Announced | None:
    """A member's announcement, for as long as the phase knows it: after `Collecting` those that are whole."""
    name = "announced" if isinstance(phase, Collecting) else "uploads"
    known: dict[str, Announced] = getattr(phase, name, {})
    return known.get(member)


def announced_before(phase: CoordinatorPhase | None, upload: Upload) -> bool:
    """Whether an upload that comes late is one that is in: its signed header pins the rest.

    While uploads are collected the phase itself looks at all of one that comes again.
    """
    known = announced(phase, upload.header.member)
    return known is not None and known.header == upload.header and not isinstance(phase, Collecting)


def stored(phase: CoordinatorPhase | None, member: str, index: int, digest: bytes) -> bool:
    """Whether this chunk is in; an answer that got lost is given again, also when the round has moved on.

    Raises:
        PeerFault: conflict where it is in with another digest.
    """
    known = announced(phase, member)
    if phase is None or known is None or not 0 <= index < phase.attempt.chunks:
        return False
    if isinstance(phase, Collecting) and not phase.stored[member] >> index & 1:
        return False
    if known.chunk_digest(index) != digest:
        raise other_bytes(member, index)
    return True


def other_bytes(owner: str, index: int) -> PeerFault:
    """Refuse other bytes for a chunk that is in (conflict)."""
    return PeerFault(
        Cause.CONFLICT,
        f"chunk {index} is stored as {owner} announced it, and other bytes were sent now: do two processes work on copies of "
        "one folder?",
        [owner],
    )


def whole_uploads(attempt: Attempt, phase: CoordinatorPhase) -> tuple[str, ...]:
    """Members whose upload is whole, as far as the phase still knows."""
    if isinstance(phase, Collecting):
        return tuple(member for member in attempt.members if phase.whole(member))
    uploads = getattr(phase, "uploads", None)
    return tuple(uploads) if uploads is not None else survivors_of(phase)


def survivors_of(phase: CoordinatorPhase) -> tuple[str, ...]:
    """The certified set, once there is one."""
    certificate: Certificate | None = getattr(phase, "certificate", None)
    return tuple(s.member for s in certificate.survivors) if certificate is not None else ()
