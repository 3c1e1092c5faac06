"""Recount a certified count: a sum follows only from counts that each of its members has added up itself (wire: Counts)."""

from client_sdk.effects import Flow
from client_sdk.errors import NoResult, PeerFault
from client_sdk.progress import Progress, Step
from client_sdk.session import Session
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import check_outcomes
from veilsum.protocol.member import Closed, MemberPhase
from veilsum.protocol.rest import round_name
from veilsum.protocol.study import ROWS_STEP
from veilsum.study.progress import RunEnd

_NO_RECOUNT_CAUSES = frozenset(
    {Cause.NOT_FOUND, Cause.WRONG_PHASE, Cause.DISCLOSURE_INVALID, Cause.EVICTION_INVALID, Cause.MALFORMED}
)
"""Causes for which a count can't be recounted at all, once its latest end has passed; others pass."""


def is_uncounted(phase: MemberPhase, context: bytes) -> bool:
    """Whether this member closed the count of a context, and can still count it."""
    return (
        isinstance(phase, Closed)
        and phase.attempt.context == context
        and phase.attempt.spec.is_disclosed
        and phase.history.count_of(context) is None
    )


def recount_step(session: Session, cohort: bytes) -> Flow[None]:
    """Fetch the disclosure of a cohort's closed count and recount it, after the proofs against evicted members.

    Raises:
        PeerFault: disclosure-invalid or eviction-invalid if the coordinator does not show what members sent.
    """
    held = session.store.load_phase(cohort)
    assert held is not None
    of_rows = isinstance(held.phase, Closed) and held.phase.attempt.terms.step == ROWS_STEP
    counted = "how many rows members have" if of_rows else "how many members hold each class"
    session.report(Progress(Step.COUNTING, detail=f"checking the count: {counted}"))
    evictions = yield from session.coordinator.fetch_evictions(held.round_id)
    disclosure = yield from session.coordinator.fetch_disclosure(held.round_id, session.member)
    phase, messages = held.phase, ((evictions,) if evictions.proofs else ()) + (disclosure,)
    for message in messages:
        phase, _ = phase.receive(message, session.key, session.environment.now_s())
    session.store_phase(cohort, held.phase, phase, held.round_id)


def recount_ended(session: Session, cohort: bytes, count: Attempt) -> Flow[None]:
    """Recount a count that has ended. If its disclosure is not shown, or not as members sent it, by the latest end, give the run up.

    Raises:
        NoResult: the run was given up.
        PeerFault: as `recount_step`, before the latest end.
    """
    try:
        yield from recount_step(session, cohort)
    except PeerFault as fault:
        early = session.environment.now_s() < count.terms.latest_end_s
        if early or fault.cause not in _NO_RECOUNT_CAUSES:
            raise
        held = session.store.load_phase(cohort)
        assert held is not None
        session.give_up_over(held.phase)
        raise NoResult(round_name(count.context), RunEnd.FAILED_COUNT, fault) from fault


def explain_no_sum(session: Session, count: Attempt) -> PeerFault | None:
    """Return why no sum can follow a count that this member has recounted, so that the run is over; None if it can."""
    history = session.store.ledger.load_history()
    named = [*count.terms.counts, count.context]
    counts = [found for context in named if (found := history.count_of(context)) is not None]
    assert counts
    if len(counts) < len(named):
        return None  # the count before it is not recounted yet
    try:
        check_outcomes(count.question, [each.to_outcome(count.quorum.survivors_min) for each in counts])
    except PeerFault as fault:
        return fault
    return None
