"""M1 to M5 as a flow: from a round's opening to its verified result, or to why there is none.

    contribute ──▶ known already? ──▶ Attendance.until_end ──▶ close ──▶ _collect ──▶ Result
                                        │  opening: policy, mask, upload
                                        │  deliveries, freeze, void: answered by protocol.member
                                        └─ certificate: evidence kept, spool cleared, reveal sent

Each phase is on disk before any message that it speaks leaves, so the flow may end at any effect: the next
one on the same folder finds out from the store where it stands and from the coordinator what is asked.
"""

from dataclasses import dataclass, replace

from client_sdk.effects import Flow
from client_sdk.enrolment import enrol
from client_sdk.errors import NoResult, NotEnrolled, PeerFault, fault_of
from client_sdk.evidence import Evidence
from client_sdk.offer import Offer, check_consistent
from client_sdk.progress import Progress, Step
from client_sdk.result import Result
from client_sdk.session import Session
from client_sdk.upload import check_same, mask, send
from protocol.causes import Cause
from protocol.member import Closed, Enrolled, MemberPhase, Opened
from protocol.member.attempting import Attempting
from protocol.messages import Certificate, Message, Opening
from protocol.rest import RoundView


def contribute(session: Session, round_id: str, offer: Offer | None) -> Flow[Result]:
    """Take part in a round until it ends; begun already, go on with it; over already, verify it again.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.
        offer: what to sum; None to help decrypting only.

    Raises:
        NoResult: the round ended without weights, or went on without this member.
        PeerFault: the coordinator broke a rule, or the policy refuses the round.
        ClientError: not enrolled, state damaged, or coordinator unreachable.
    """
    folder = session.store.results(round_id)
    if Result.saved_in(folder):
        result = Result.load(folder)
        result.verify(session.policy.federation)
        return result
    yield from session.roster()
    view = yield from session.round(round_id)
    cohort = bytes.fromhex(view.cohort)
    session.store.lapse_others(cohort, session.surroundings.now_s())
    attendance = yield from _attend(session, round_id, cohort, offer)
    if not (attendance.taking_part or Evidence.saved_in(folder)):
        yield from attendance.close_earlier()
    view = yield from attendance.until_end(view)
    yield from attendance.close(view)
    return (yield from _collect(session, view))


def _attend(session: Session, round_id: str, cohort: bytes, offer: Offer | None) -> "Flow[Attendance]":
    held = session.store.held(cohort)
    if held is None:
        raise NotEnrolled(
            f"round {round_id} is of cohort {cohort.hex()}, which this member holds no keys for: call "
            "enrol(cohort) while the cohort takes cards"
        )
    if isinstance(held.phase, Enrolled):
        yield from enrol(session, cohort)
        held = session.store.held(cohort)
        assert held is not None
    return Attendance(session, round_id, cohort, offer, held.phase, held.round_id)


@dataclass
class Attendance:
    """A member in one round.

    Attributes:
        phase: as it is stored.
        phase_round: the round that `phase` is in or was in last.
    """

    session: Session
    round_id: str
    cohort: bytes
    offer: Offer | None
    phase: MemberPhase
    phase_round: str

    @property
    def taking_part(self) -> bool:
        """Whether the member has seen this round's opening."""
        return self.phase_round == self.round_id and isinstance(self.phase, Attempting | Closed)

    def until_end(self, view: RoundView) -> Flow[RoundView]:
        """Answer whatever is asked until the round has ended."""
        after: int | None = None
        while not view.ended:
            self._report(view)
            if self._lapsed():
                fault = PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end passed without a certificate")
                raise NoResult(self.round_id, "lapsed", fault)
            asked_s, before = self.session.surroundings.monotonic_s(), after
            message, after = yield from self.session.coordinator.request(
                self.round_id, self.session.member, after
            )
            if after == before:
                yield from self.session.unhurried(asked_s)
            if message is not None:
                yield from self._answer(message, view)
            view = yield from self.session.round(self.round_id)
        return view

    def close(self, view: RoundView) -> Flow[None]:
        """Take the certificate of a round that has ended, erase what is not needed any more, keep the evidence.

        Raises:
            NoResult: lost, voided, failed, or missed.
        """
        fault = fault_of(view.fault) if view.fault else PeerFault(Cause.QUORUM_LOST)
        if view.state == "lost":
            # Neither outcome can be had: the keys of the round go, and the cohort with them (protocol §4.7).
            self.session.store.retire(self.cohort, self.round_id, "lost", fault)
            raise NoResult(self.round_id, "lost", fault)
        if self.taking_part and isinstance(self.phase, Attempting):
            message, _ = yield from self.session.coordinator.request(self.round_id, self.session.member)
            if not isinstance(message, Certificate):
                raise PeerFault(
                    Cause.WRONG_PHASE, "the round has ended, but shows no certificate", ["coordinator"]
                )
            self._receive(message)
        self._forget_reveals()
        if view.state != "done":
            raise NoResult(self.round_id, view.state, fault)
        if not Evidence.saved_in(self.session.store.results(self.round_id)):
            fault = PeerFault(
                Cause.WRONG_PHASE, "this member did not see its opening, or not its certificate in time"
            )
            raise NoResult(self.round_id, "missed", fault)

    def close_earlier(self) -> Flow[None]:
        """Close the round that this member vanished from, so that its keys move on to this one.

        Raises:
            PeerFault: wrong-sequence where that round has not ended.
            NoResult: it was lost, and the cohort with it.
        """
        if not isinstance(self.phase, Attempting):
            return
        earlier = replace(self, round_id=self.phase_round, offer=None)
        view = yield from self.session.round(earlier.round_id)
        if not view.ended:
            if self._lapsed():
                return
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"round {earlier.round_id} is still {view.state}: finish it by contribute({earlier.round_id!r}) first",
            )
        try:
            yield from earlier.close(view)
        except NoResult as ending:
            if ending.state == "lost":
                raise
        self.phase = earlier.phase

    def _answer(self, message: Message, view: RoundView) -> Flow[None]:
        if isinstance(message, Opening):
            yield from self._opening(message, view)
            return
        if not self.taking_part:
            # It comes late: its upload would not count any more, but it can still help to end the attempt.
            self._open((yield from self.session.coordinator.opening(self.round_id)), view)
        for reply in self._receive(message):
            try:
                yield from self.session.coordinator.answer(self.round_id, reply)
            except PeerFault as fault:
                if fault.cause is not Cause.WRONG_PHASE:
                    raise  # otherwise the phase ended while the answer was on its way

    def _opening(self, opening: Opening, view: RoundView) -> Flow[None]:
        if not (self.taking_part and isinstance(self.phase, Attempting)):
            self._open(opening, view)
        elif opening != self.phase.opening:
            raise PeerFault(Cause.WRONG_CONTEXT, "another opening is shown for this round", ["coordinator"])
        if isinstance(self.phase, Opened) and self.offer is not None:
            self.offer.check(self.phase.attempt, self.session.member)
            self.phase = yield from mask(self.session, self.round_id, self.phase, self.offer)
        assert isinstance(self.phase, Attempting)
        for upload in self.phase.uploads:
            if self.offer is not None:
                check_same(upload, self.offer)
            try:
                yield from send(self.session, self.round_id, self.cohort, upload)
            except PeerFault as fault:
                if fault.cause is not Cause.WRONG_PHASE:
                    raise
                # Also where the answer to the last chunk was lost on its way: then the upload is whole.
                detail = "the round has moved on; the certificate will show whether this upload is counted"
                self.session.report(Progress(Step.UPLOADING, phase=view.state, detail=detail))

    def _open(self, opening: Opening, view: RoundView) -> None:
        """Check an opening: signature and history, the roster's age, the policy, the terms; then store it."""
        session, now_s = self.session, self.session.surroundings.now_s()
        if self.phase_round == self.round_id or Evidence.saved_in(session.store.results(self.round_id)):
            # One call is one attempt: two sums over the same records, a member apart, show that member's vector.
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "this round is over for this member: it opens no other one",
                ["coordinator"],
            )
        opened, _ = self.phase.receive(opening, session.key, now_s)
        assert isinstance(opened, Opened)
        attempt = opened.attempt
        session.check_current(attempt.roster)
        session.policy.check_manifest(attempt.roster, attempt.manifest)
        session.policy.check_terms(attempt, now_s)
        check_consistent(attempt)
        if self.offer is not None:
            self.offer.check(attempt, session.member)
        if view.context != attempt.context.hex():
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the coordinator computes another context from this opening: it holds another roster, manifest or "
                "history than this member was shown",
                ["coordinator"],
            )
        self._hold(opened)

    def _receive(self, message: Message) -> tuple[Message, ...]:
        session = self.session
        following, replies = self.phase.receive(message, session.key, session.surroundings.now_s())
        if isinstance(following, Closed) and following is not self.phase:
            # The evidence first: once the phase is Closed and a later round opens, nothing else holds it.
            Evidence.of(following).save(session.store.results(self.round_id))
        if following is not self.phase:
            self._hold(following)
        if isinstance(following, Closed):
            session.store.spool(self.cohort).clear()
        if replies:
            session.report(Progress(Step.ANSWERING, detail=type(replies[0]).__name__.lower()))
        return replies

    def _hold(self, phase: MemberPhase) -> None:
        self.session.store.hold(self.cohort, phase, self.round_id)
        self.phase, self.phase_round = phase, self.round_id

    def _forget_reveals(self) -> None:
        """Nobody may ask for the reveal any more."""
        if self.taking_part and isinstance(self.phase, Closed) and self.phase.reveals:
            self._hold(replace(self.phase, reveals=()))

    def _lapsed(self) -> bool:
        """Erase the round's secrets if the terms' latest end has passed; whether that ended an attempt."""
        now_s = self.session.surroundings.now_s()
        before, following = self.phase, self.phase.lapse(now_s)
        if following is not self.phase:
            self.session.store.hold(self.cohort, following, self.phase_round)
            self.session.store.spool(self.cohort).clear()
            self.phase = following
        return isinstance(before, Attempting) and following is not before

    def _report(self, view: RoundView) -> None:
        there = len(view.members) - len(view.waiting_for)
        self.session.report(
            Progress(
                Step.WAITING,
                phase=view.state,
                done=there,
                total=len(view.members),
                waiting_for=view.waiting_for,
                until_s=view.deadline_s,
            )
        )


def _collect(session: Session, view: RoundView) -> Flow[Result]:
    session.report(Progress(Step.VERIFYING, phase=view.state))
    record = yield from session.coordinator.result(view.round)
    weights_file = yield from session.coordinator.weights(view.round)
    folder = session.store.results(view.round)
    result = Result(Evidence.load(folder), record, weights_file)
    result.verify(session.policy.federation)
    result.save(folder)
    session.report(Progress(Step.DONE, phase=view.state, done=len(result.survivors), total=len(view.members)))
    return result
