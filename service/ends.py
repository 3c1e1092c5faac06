"""How a round ends, as the service keeps it: a certificate, or the admin's Lost."""

from protocol.coordinator import (
    Abandoned,
    Certified,
    CoordinatorPhase,
    Failed,
    Lost,
    Revealing,
    Voided,
    Voiding,
)
from protocol.messages import Certificate, parse
from protocol.messages import Lost as LostMessage

Closing = Certificate | LostMessage
"""What ends an attempt in everybody's history."""

UNSIGNED = bytes(64)
"""Stands where a signature is still to be made."""

SETTLED = (Voided, Failed, Abandoned)
"""Ends with no sum to compute. Lost is none yet: it waits for reports and the admin."""

_ON_THE_WAY: dict[type[CoordinatorPhase], str] = {
    Voided: Voiding.name,
    Failed: Revealing.name,
    Abandoned: Lost.name,
}


def shown_state(phase: CoordinatorPhase) -> str:
    """A live phase's name; an end is shown once it is kept, until then the round is on its way there."""
    return _ON_THE_WAY.get(type(phase), phase.name)


def closing_of(phase: CoordinatorPhase) -> Closing:
    """What closes an attempt that has ended."""
    if isinstance(phase, Abandoned):
        return phase.lost
    assert isinstance(phase, Certified)
    return phase.certificate


def closing_from(body: bytes) -> Closing:
    """What `to_bytes` stored."""
    closing = parse(body)
    assert isinstance(closing, Closing)
    return closing


def unsigned(phase: Lost) -> LostMessage:
    """What the admin is to sign over a lost attempt."""
    reports = tuple(phase.reports[member] for member in sorted(phase.reports))
    return LostMessage(context=phase.attempt.context, reports=reports, signature=UNSIGNED)
