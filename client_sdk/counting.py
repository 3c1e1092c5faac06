"""An indicator round recounted, and the round that follows it (protocol §9)."""

from functools import partial

from client_sdk.effects import Flow, compute
from client_sdk.errors import PeerFault
from client_sdk.progress import Progress, Step
from client_sdk.session import Session
from client_sdk.supply import Wanted
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.member import Closed, History
from protocol.member.history import Counted
from protocol.messages import NO_INDICATOR, Family, Message


def counts_of(history: History, context: bytes) -> Counted | None:
    """What this member counted in the indicator round of a context."""
    return next((each for each in history.counted if each.context == context), None)


def uncounted(phase: object, context: bytes) -> bool:
    """Whether this member closed the indicator round of a context, and can still count it."""
    return (
        isinstance(phase, Closed)
        and phase.attempt.context == context
        and phase.opening.terms.family == Family.INDICATOR
        and counts_of(phase.history, context) is None
    )


def count(session: Session, round_id: str, phase: Closed) -> Flow[Closed]:
    """Fetch what an indicator round was made of, and count; the proofs against those that were evicted come first.

    Returns:
        The phase that knows the counts, stored.

    Raises:
        PeerFault: disclosure-invalid or eviction-invalid where the coordinator shows something else than members sent.
    """
    session.report(Progress(Step.COUNTING, detail="checking how many members hold each class"))
    evictions = yield from session.coordinator.evictions(round_id)
    disclosure = yield from session.coordinator.disclosure(round_id, session.member)
    messages: tuple[Message, ...] = (evictions, disclosure) if evictions.proofs else (disclosure,)
    following = phase
    for message in messages:
        now_s = session.surroundings.now_s()
        received, _ = yield from compute(partial(following.receive, message, session.key, now_s))
        assert isinstance(received, Closed)
        following = received
    session.hold(phase.opening.cohort, phase, following, round_id)
    return following


def check_classes(attempt: Attempt, history: History) -> None:
    """Refuse a round over other classes than its indicator round counted (indicator-mismatch; protocol §4.3, clause 9)."""
    context = attempt.opening.terms.indicator
    if context == NO_INDICATOR:
        return
    counted, classes = counts_of(history, context), Wanted.of(attempt).classes
    if counted is None or len(counted.holders) != classes:
        seen = "none" if counted is None else len(counted.holders)
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"the round is over {classes} classes, its indicator round counted {seen}",
            ["coordinator"],
        )


def following_round(session: Session, cohort: bytes, round_id: str) -> Flow[str]:
    """The round that the operator opens after this one, waited for."""
    after: int | None = None
    while True:
        asked_s = session.surroundings.monotonic_s()
        view = yield from session.coordinator.cohort(cohort, after)
        if round_id not in view.rounds:
            raise PeerFault(Cause.MALFORMED, f"the cohort is shown without round {round_id}", ["coordinator"])
        later = view.rounds[view.rounds.index(round_id) + 1 :]
        if later:
            newest = yield from session.round(later[-1])
            if not newest.ended or newest.state == "done":
                return later[-1]
        session.report(
            Progress(Step.WAITING, detail="the classes are counted; the operator opens the next round")
        )
        if view.version == after:
            yield from session.unhurried(asked_s)
        after = view.version
