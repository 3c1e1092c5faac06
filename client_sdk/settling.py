"""How attempts ended that this member left open: heard of before it opens another one (protocol §4.3)."""

from client_sdk.effects import Flow
from client_sdk.errors import PeerFault
from client_sdk.session import Session
from protocol.causes import Cause
from protocol.messages import Certificate, Lost
from protocol.rest import round_name


def settle(session: Session) -> Flow[None]:
    """Hear how the attempts ended that this member left open: it opens no other one before (protocol §4.3).

    Raises:
        PeerFault: outcome-missing where the coordinator does not show it; certificate-invalid and others where what it
            shows closes nothing.
    """
    history = session.store.history()
    for entry in history.unsettled:
        context = entry.attempt.context
        try:
            document = yield from session.coordinator.closing(context)
        except PeerFault as fault:
            if fault.cause not in {Cause.NOT_FOUND, Cause.WRONG_PHASE}:
                raise
            raise PeerFault(
                Cause.OUTCOME_MISSING,
                f"this member took part in round {round_name(context)} and is not shown how it ended: {fault.detail}",
                ["coordinator"],
            ) from fault
        before, history = history, history.settle(document)
        session.store.remember(history, before)
        release(session, document)


def refund(session: Session) -> Flow[None]:
    """Hear how the noisy attempts ended that were charged, also those that this member then could not take part in.

    Raises:
        PeerFault: what the coordinator shows closes nothing.
    """
    for attempt in session.store.lineages.awaited():
        try:
            document = yield from session.coordinator.closing(attempt.context)
        except PeerFault as fault:
            if fault.cause not in {Cause.NOT_FOUND, Cause.WRONG_PHASE}:
                raise
            continue  # charged it stays, and holds nothing up
        if isinstance(document, Certificate):
            attempt.check_certificate(document)
        else:
            attempt.check_lost(document)
        release(session, document)


def release(session: Session, document: Certificate | Lost) -> None:
    """An attempt has ended; records that went into a VOID one were not opened."""
    lineages = session.store.lineages
    if isinstance(document, Certificate) and document.void:
        lineages.release(document.context)
    lineages.heard(document.context)
