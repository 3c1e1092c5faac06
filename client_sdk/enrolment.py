"""M0 as a flow: send the card, wait for the manifest, check it, and forget the private keys."""

from client_sdk.effects import Flow
from client_sdk.errors import PeerFault, fault_of
from client_sdk.progress import Progress, Step
from client_sdk.session import Session, ready_of
from protocol.attempt import check_manifest
from protocol.causes import Cause
from protocol.member import Enrolled, MemberPhase
from protocol.parameters import Quorum
from protocol.rest import CohortView


def enrol(session: Session, cohort: bytes) -> Flow[Quorum]:
    """Join a cohort, or go on joining it after a crash; joined already, it only says what holds.

    Args:
        session: the member.
        cohort: the cohort's id, 32 bytes.

    Returns:
        The cohort's numbers; `caution()` says what very small ones mean.

    Raises:
        PeerFault: the roster, the coordinator, the manifest or the policy refuses.
        ClientError: the state is damaged or the coordinator can't be reached.
    """
    roster = yield from session.roster()
    held = session.store.held(cohort)
    phase: MemberPhase
    if held is None:
        phase, _ = Enrolled.start(
            session.member,
            roster,
            cohort,
            session.key,
            expires_s=int(session.surroundings.now_s() + session.policy.card_lifetime_s),
            history=session.store.history(),
            random_bytes=session.surroundings.random_bytes,
        )
        session.store.hold(cohort, phase, "")
    else:
        phase = held.phase
    if isinstance(phase, Enrolled):
        view = yield from _card_sent(session, phase, fresh=held is None)
        phase = yield from _formed(session, phase, view)
    ready = ready_of(phase)
    return check_manifest(ready.roster, ready.manifest)


def _card_sent(session: Session, phase: Enrolled, *, fresh: bool) -> Flow[CohortView]:
    if not fresh:
        # A cohort that formed while this member was away takes no cards any more, not even one it has.
        view = yield from session.coordinator.cohort(phase.card.cohort)
        if view.state != "enrolling" or session.member in view.cards:
            return view
    return (yield from session.coordinator.send_card(phase.card))


def _formed(session: Session, phase: Enrolled, view: CohortView) -> Flow[MemberPhase]:
    cohort = phase.card.cohort
    while view.state == "enrolling":
        session.report(
            Progress(
                Step.ENROLLING,
                phase=view.state,
                done=len(view.cards),
                total=len(view.members),
                waiting_for=tuple(sorted(set(view.members) - set(view.cards))),
                until_s=view.deadline_s,
            )
        )
        asked_s, before = session.surroundings.monotonic_s(), view.version
        view = yield from session.coordinator.cohort(cohort, before)
        if view.version == before:
            yield from session.unhurried(asked_s)
    if view.state == "failed":
        raise fault_of(view.fault) if view.fault else PeerFault(Cause.COHORT_TOO_SMALL)
    session.check_current(phase.roster)
    cards = yield from session.coordinator.cards(cohort, session.member)
    following, _ = phase.receive(cards, session.key, session.surroundings.now_s())
    session.policy.check_manifest(phase.roster, cards.manifest)
    # The pair secrets replace the private keys in one atomic write (protocol §4.2).
    session.store.hold(cohort, following, "")
    return following
