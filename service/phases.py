"""What the service reads out of a coordinator's phase: announcements, whole uploads, survivors, and how it ends."""

from collections.abc import Mapping

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Erasing,
    Failed,
    Lost,
    Revealing,
    Voided,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Certificate, Upload, parse
from veilsum.protocol.shelf import Announced

SETTLED = (Voided, VoidedByErasure, Failed, Lost)
"""Ends with no sum to compute."""

_ON_THE_WAY: dict[type[CoordinatorPhase], str] = {
    Voided: Voiding.name,
    VoidedByErasure: Erasing.name,
    Failed: Revealing.name,
    Lost: Erasing.name,
}


def announcements(phase: CoordinatorPhase | None) -> Mapping[str, Announced]:
    """By member, for as long as the phase knows them: after `Collecting` those that are whole."""
    known: Mapping[str, Announced] = getattr(
        phase, "announced" if isinstance(phase, Collecting) else "uploads", {}
    )
    return known


def announced(phase: CoordinatorPhase | None, member: str) -> Announced | None:
    """A member's."""
    return announcements(phase).get(member)


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
        raise PeerFault(
            Cause.CONFLICT,
            f"chunk {index} is stored as {member} announced it, and other bytes were sent now: do two processes work on copies of "
            "one folder?",
            [member],
        )
    return True


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


def shown_state(phase: CoordinatorPhase) -> str:
    """A live phase's name; an end is shown once it is kept, until then the round is on its way there."""
    return _ON_THE_WAY.get(type(phase), phase.name)


def closing_of(phase: CoordinatorPhase) -> Closing:
    """What closes an attempt that has ended."""
    assert isinstance(phase, Ended)
    return phase.closing


def closing_from(body: bytes) -> Closing:
    """What `to_bytes` stored."""
    closing = parse(body)
    assert isinstance(closing, Closing)
    return closing
