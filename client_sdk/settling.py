"""How attempts ended that this member left open: heard of before it opens another one (protocol §4.3)."""

from client_sdk.effects import Flow
from client_sdk.errors import PeerFault
from client_sdk.result import Result
from client_sdk.session import Session
from protocol.attempt import Closing
from protocol.causes import Cause
from protocol.messages import Certificate, Erasure
from protocol.rest import round_name


def settle(session: Session) -> Flow[None]:
    """Hear how the attempts ended that this member left open: it opens no other one before (protocol §4.3).

    Raises:
        PeerFault: outcome-missing where the coordinator does not show it; certificate-invalid and others where what it
            shows closes nothing.
    """
    history, now_s = session.store.history(), session.surroundings.now_s()
    for entry in history.unsettled:
        try:
            document = yield from session.coordinator.closing(entry.context)
        except PeerFault as fault:
            if fault.cause not in {Cause.NOT_FOUND, Cause.WRONG_PHASE}:
                raise
            raise PeerFault(
                Cause.OUTCOME_MISSING,
                f"this member took part in round {round_name(entry.context)} and is not shown how it ended: {fault.detail}",
                ["coordinator"],
            ) from fault
        before, history = history, history.settle(document, now_s)
        session.store.remember(history, before)
        release(session, document)
    for entry in history.certified:
        if Result.saved_in(session.store.results(round_name(entry.context))):
            continue
        # Without a sum, an Erasure or the admin's Lost may have taken the place of the certificate.
        document = yield from session.coordinator.closing(entry.context)
        before, history = history, history.settle(document, now_s)
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
        attempt.check_closing(document)
        release(session, document)


def release(session: Session, document: Closing) -> None:
    """An attempt has ended; records that went into a VOID one were not opened."""
    lineages = session.store.lineages
    if isinstance(document, Erasure) or (isinstance(document, Certificate) and document.void):
        lineages.release(document.context)
    lineages.heard(document.context)
