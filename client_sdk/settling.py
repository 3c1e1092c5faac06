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


def release(session: Session, document: Certificate | Lost) -> None:
    """Records that went into a VOID attempt were not opened."""
    if isinstance(document, Certificate) and document.void:
        session.store.lineages.release(document.context)
