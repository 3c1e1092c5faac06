"""M1 to M5 as a flow: from a round's opening to its verified result, or to why there is none.

    contribute ──▶ known already? ──▶ Attendance.until_end ──▶ close ──▶ collect ──▶ Result
        ▲                               │                        └──▶ count ──▶ the next round of the cohort
        └─── an indicator round leads on to the round that withholds by its counts ────┘
                                        │  opening: history, policy, ledger, mask, upload
                                        │  deliveries, freeze, void, evictions, erasure: answered by protocol.member
                                        └─ certificate: evidence kept, spool cleared, reveal sent

Each phase is on disk before any message that it speaks leaves, so the flow may end at any effect: the next
one on the same folder finds out from the store where it stands and from the coordinator what is asked.
"""

from dataclasses import dataclass, replace
from functools import partial

from client_sdk.asked import check_material, material_digest, mu_of
from client_sdk.counting import check_classes, count, counts_of, following_round, uncounted
from client_sdk.effects import Flow, compute
from client_sdk.enrolment import enrol
from client_sdk.errors import NoResult, NotEnrolled, PeerFault, fault_in
from client_sdk.evidence import Evidence
from client_sdk.files import write_durably
from client_sdk.offer import Offer, check_consistent
from client_sdk.progress import Progress, Step
from client_sdk.replaying import FETCHED_UP_TO
from client_sdk.result import TRANSCRIPT, Result
from client_sdk.session import Session, ready_of
from client_sdk.settling import refund, release, settle
from client_sdk.supply import Supply, check_collects
from client_sdk.upload import check_same, mask, send
from protocol.attempt import Attempt, Closing
from protocol.causes import Cause
from protocol.member import Closed, Enrolled, MemberPhase, Opened
from protocol.member.attempting import Attempting
from protocol.messages import ErasureRequest, Family, Message, Opening, Refusal, Terms
from protocol.record import verify_record
from protocol.rest import MAX_MESSAGE_BYTES, MAX_TRANSCRIPT_BYTES, RoundView


def contribute(session: Session, round_id: str, supply: Supply | None) -> Flow[Result]:
    """Take part in a round until it ends; begun already, go on with it; over already, verify it again.

    After an indicator round it is counted, and the next round of the cohort is waited for and taken part in.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.
        supply: what to sum; None to help decrypting only.

    Raises:
        NoResult: the round ended without weights, or went on without this member.
        PeerFault: the coordinator broke a rule, or the policy refuses the round.
        ClientError: not enrolled, state damaged, or coordinator unreachable.
    """
    while True:
        result = yield from _take_part(session, round_id, supply)
        if isinstance(result, Result):
            return result
        round_id = yield from following_round(session, result, round_id)


def _take_part(session: Session, round_id: str, supply: Supply | None) -> Flow[Result | bytes]:
    """One round; its result, or the cohort of an indicator round, which has none."""
    folder = session.store.results(round_id)
    if Result.saved_in(folder):
        result = session.verified(folder)
        _settle_saved(session, round_id, result.evidence.manifest.cohort)
        return result
    yield from session.roster()
    yield from refund(session)
    view = yield from session.round(round_id)
    cohort = bytes.fromhex(view.cohort)
    session.store.lapse_others(cohort, session.surroundings.now_s())
    attendance = yield from _attend(session, round_id, cohort, supply)
    if not (attendance.phase_round == round_id or Evidence.saved_in(folder)):
        yield from attendance.close_earlier()
        if not view.ended:
            yield from settle(session)
    view = yield from attendance.until_end(view)
    yield from attendance.close(view)
    if Evidence.load(folder).opening.terms.family == Family.INDICATOR:
        yield from attendance.count()
        return cohort
    return (yield from attendance.collect(view))


def _settle_saved(session: Session, round_id: str, cohort: bytes) -> None:
    """Erase the shares of a saved round: a crash may have come between the two."""
    if (held := session.store.held(cohort)) is not None:
        Attendance(session, round_id, cohort, None, held.phase, held.round_id).erase_shares()


def _attend(session: Session, round_id: str, cohort: bytes, supply: Supply | None) -> "Flow[Attendance]":
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
    return Attendance(session, round_id, cohort, supply, held.phase, held.round_id)


@dataclass
class Attendance:
    """A member in one round.

    Attributes:
        phase: as it is stored.
        phase_round: the round that `phase` is in or was in last.
        offer: what is summed, once its terms are known.
        material: what the round's question rests on, once it is fetched: nobody can withhold it later.
    """

    session: Session
    round_id: str
    cohort: bytes
    supply: Supply | None
    phase: MemberPhase
    phase_round: str
    offer: Offer | None = None
    material: bytes | None = None

    @property
    def taking_part(self) -> bool:
        """Whether the member has seen this round's opening."""
        return self.phase_round == self.round_id and isinstance(self.phase, Attempting | Closed)

    def until_end(self, view: RoundView) -> Flow[RoundView]:
        """Answer whatever is asked until the round has ended.

        Raises:
            NoResult: lapsed; or erasing, once this member has reported.
        """
        after: int | None = None
        answered: Message | None = None
        while not view.ended:
            self._report(view)
            if self._lapsed() and view.state != "erasing":
                fault = PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end passed without a certificate")
                raise NoResult(self.round_id, "lapsed", fault)
            erasing = view.state == "erasing"  # others may take days: nobody waits for them here
            asked_s, before = self.session.surroundings.monotonic_s(), after
            message, after = yield from self.session.coordinator.request(
                self.round_id, self.session.member, None if erasing else after
            )
            if after == before and not erasing:
                yield from self.session.unhurried(asked_s)
            if message is None or message == answered:
                # A certificate is shown to whoever asks, also who has answered it.
                view = yield from self.session.round(self.round_id)
                if erasing and message is None and view.state == "erasing":
                    raise NoResult(self.round_id, "erasing", fault_in(view))
                if message is None or view.ended or self.session.member not in view.waiting_for:
                    continue
            view, answered = (yield from self._answer(message, view)), message
        return view

    def close(self, view: RoundView) -> Flow[None]:
        """Take what closed a round that has ended, erase what is not needed any more, keep the evidence.

        Raises:
            NoResult: voided, erased, failed, lost, or missed.
        """
        if self.taking_part and isinstance(self.phase, Attempting):
            message, _ = yield from self.session.coordinator.request(self.round_id, self.session.member)
            if not isinstance(message, Closing):
                raise PeerFault(
                    Cause.WRONG_PHASE, "the round has ended, but does not show how", ["coordinator"]
                )
            self._receive(message)
        elif view.state in {"erased", "lost"}:
            yield from settle(self.session)
        if view.state != "done":
            self.erase_shares()
            raise NoResult(self.round_id, view.state, fault_in(view))
        if not Evidence.saved_in(self.session.store.results(self.round_id)):
            fault = PeerFault(
                Cause.WRONG_PHASE, "this member did not see its opening, or not its certificate in time"
            )
            raise NoResult(self.round_id, "missed", fault)

    def collect(self, view: RoundView) -> Flow[Result]:
        """Fetch the result, verify it, and keep it; the shares are erased then: nobody may ask for them any more."""
        session = self.session
        session.report(Progress(Step.VERIFYING, phase=view.state))
        folder = session.store.results(view.round)
        evidence = Evidence.load(folder)
        record = yield from session.coordinator.result(view.round)
        verify_record(record, evidence.roster.coordinator)  # before all that it names is fetched
        weights_file = None
        if record.weights_sha256 is not None:
            weights_file = yield from session.coordinator.weights(view.round)
        documents = {}
        for each in record.documents:
            documents[each.name] = yield from session.coordinator.document(view.round, each.name)
        evictions = (yield from session.coordinator.evictions(view.round)) if record.evicted else None
        transcript = None
        if session.transcripts or len(evidence.attempt.members) <= FETCHED_UP_TO:
            limit = MAX_TRANSCRIPT_BYTES if session.transcripts else MAX_MESSAGE_BYTES
            transcript = yield from session.coordinator.transcript(view.round, limit)
            # Before it is replayed: where it shows that the coordinator is false, it is what shows it to others.
            write_durably(folder / TRANSCRIPT, transcript)
        material = yield from self._material(evidence.opening.terms)
        result = Result(evidence, record, weights_file, evictions, transcript, documents, material)
        yield from compute(partial(result.verify, session.policy.federation))
        result.check_counts(session.store.history())
        result.save(folder)
        self.erase_shares()
        session.report(
            Progress(Step.DONE, phase=view.state, done=len(result.summed), total=len(view.members))
        )
        return result

    def count(self) -> Flow[None]:
        """Count an indicator round that is done, and erase its shares; again without effect.

        Raises:
            PeerFault: indicator-mismatch where this member went on without counting; and as `counting.count`.
        """
        context = Evidence.load(self.session.store.results(self.round_id)).attempt.context
        self.phase = self._knowing()
        if self.phase_round == self.round_id and uncounted(self.phase, context):
            assert isinstance(self.phase, Closed)
            self.phase = yield from count(self.session, self.round_id, self.phase)
            self.erase_shares()
        if counts_of(self.session.store.history(), context) is None:
            raise PeerFault(
                Cause.INDICATOR_MISMATCH,
                f"this member went on without counting indicator round {self.round_id}: take part in the next one",
            )

    def close_earlier(self) -> Flow[None]:
        """Close the rounds that this member vanished from, of this cohort and of others, so that it may enter this one.

        Raises:
            PeerFault: wrong-sequence where such a round has not ended.
        """
        for cohort, held in list(self.session.store.cohorts()):
            if not isinstance(held.phase, Attempting):
                continue
            earlier = replace(
                self,
                cohort=cohort,
                phase=held.phase,
                phase_round=held.round_id,
                round_id=held.round_id,
                supply=None,
            )
            yield from earlier.finish()
            if cohort == self.cohort:
                self.phase = earlier.phase

    def finish(self) -> Flow[None]:
        """Close the round that this phase is in, or let it lapse."""
        view = yield from self.session.round(self.round_id)
        if not view.ended:
            if self._lapsed():
                return
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"round {self.round_id} is still {view.state}: finish it by contribute({self.round_id!r}) first",
            )
        try:
            yield from self.close(view)
        except NoResult:
            return

    def erase_shares(self) -> None:
        """Nobody may ask any more for the shares of a round that is over."""
        if self.taking_part and isinstance(self.phase, Closed):
            following = self.phase.settled()
            if following is not self.phase:
                self._hold(following)

    def _answer(self, message: Message, view: RoundView) -> Flow[RoundView]:
        if isinstance(message, Opening):
            yield from self._opening(message, view)
            return (yield from self.session.round(self.round_id))
        if isinstance(message, ErasureRequest):
            yield from self._prepare_erasure(message)
        elif not self.taking_part and self.phase_round == self.round_id:
            raise NoResult(self.round_id, "lapsed", PeerFault(Cause.TERMS_EXPIRED))
        elif not self.taking_part:
            # It comes late: its upload would not count any more, but it can still help to end the attempt.
            opening = yield from self.session.coordinator.opening(self.round_id)
            yield from self._open(opening, view, None)
        replies = self._receive(message)
        for reply in replies:
            if isinstance(reply, Refusal):
                detail = f"refused to sign, {reply.cause}"
                self.session.report(Progress(Step.ANSWERING, phase=view.state, detail=detail))
            view = yield from self.session.answer(self.round_id, reply)
        return view if replies else (yield from self.session.round(self.round_id))

    def _prepare_erasure(self, request: ErasureRequest) -> Flow[None]:
        """Show the opening to a member that never saw it: it erases the keys of the sequence."""
        entries = ready_of(self.phase).history.unsettled
        if not self.taking_part and all(entry.context != request.context for entry in entries):
            opening = yield from self.session.coordinator.opening(self.round_id)
            self._receive(opening)

    def _opening(self, opening: Opening, view: RoundView) -> Flow[None]:
        if not (self.taking_part and isinstance(self.phase, Attempting)):
            yield from self._open(opening, view, self.supply)
        elif opening != self.phase.opening:
            raise PeerFault(Cause.WRONG_CONTEXT, "another opening is shown for this round", ["coordinator"])
        elif isinstance(self.phase, Opened) and self.supply is not None:
            # Opened before a restart: what it brings now may be other records, under another policy or roster.
            self._check_allowed(self.phase.attempt)
            yield from self._bring(self.phase, self.supply)
        if isinstance(self.phase, Opened) and self.supply is not None:
            offer = yield from self._offered(self.phase.attempt)
            self.phase = yield from mask(self.session, self.round_id, self.phase, offer)
        assert isinstance(self.phase, Attempting)
        for upload in self.phase.uploads:
            if self.supply is not None:
                offer = yield from self._offered(self.phase.attempt)
                check_same(upload, offer, self.phase.opening.terms)
            try:
                yield from send(self.session, self.round_id, self.cohort, upload)
            except PeerFault as fault:
                if fault.cause is not Cause.WRONG_PHASE:
                    raise
                # Also where the answer to the last chunk was lost on its way: then the upload is whole.
                detail = "the round has moved on; the certificate will show whether this upload is counted"
                self.session.report(Progress(Step.UPLOADING, phase=view.state, detail=detail))

    def _open(self, opening: Opening, view: RoundView, supply: Supply | None) -> Flow[None]:
        """Check an opening: signature and history, the roster's age, the policy, the terms, the records, if any can be brought; then store it."""
        session, now_s = self.session, self.session.surroundings.now_s()
        if self.phase_round == self.round_id or Evidence.saved_in(session.store.results(self.round_id)):
            # One call is one attempt: two sums over the same records, a member apart, show that member's vector.
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "this round is over for this member: it opens no other one",
                ["coordinator"],
            )
        context = opening.terms.indicator
        self.phase = self._knowing()
        if uncounted(self.phase, context):
            assert isinstance(self.phase, Closed)
            self.phase = yield from count(session, self.phase_round, self.phase)
        opened, _ = self.phase.receive(opening, session.key, now_s)
        assert isinstance(opened, Opened)
        attempt = opened.attempt
        self._check_allowed(attempt)
        check_consistent(attempt)
        check_classes(attempt, opened.history)
        if view.context != attempt.context.hex():
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the coordinator computes another context from this opening: it holds another roster, manifest or "
                "history than this member was shown",
                ["coordinator"],
            )
        if supply is not None:
            yield from self._bring(opened, supply)
        self._hold(opened)

    def _check_allowed(self, attempt: Attempt) -> None:
        """Refuse what roster and policy, as they are now, don't allow (roster-rollback, policy-refused)."""
        session = self.session
        session.check_current(attempt.roster)
        session.policy.check_manifest(attempt.roster, attempt.manifest)
        session.policy.check_opening(attempt, session.member, session.surroundings.now_s())

    def _bring(self, opened: Opened, supply: Supply) -> Flow[None]:
        """Make the statistics and check them against the round and this member's own ledger.

        A noisy round is paid for first, once: before any record is looked at, and after all that may be wrong about the round itself.
        """
        session, attempt = self.session, opened.attempt
        lineages, policy, mu = session.store.lineages, session.policy, mu_of(attempt)
        if mu > 0:
            material = yield from self._material(attempt.opening.terms)
            yield from compute(partial(check_collects, attempt, material))
            yield from compute(partial(lineages.await_end, attempt))
            yield from compute(
                partial(lineages.charge, supply.name, supply.lineage, attempt.context, mu, policy)
            )
        offer = yield from self._offered(attempt)
        offer.check(attempt, session.member)
        family = opened.opening.terms.family.value
        yield from compute(partial(lineages.check, offer, family, attempt.context, policy, charged=mu))

    def _offered(self, attempt: Attempt) -> Flow[Offer]:
        """What this member brings to the attempt, made once."""
        if self.offer is None:
            assert self.supply is not None
            material = yield from self._material(attempt.opening.terms)
            self.offer = yield from compute(partial(self.supply.offer, attempt, material))
        return self.offer

    def _material(self, terms: Terms) -> Flow[bytes | None]:
        """What the round's question rests on, as its terms name it; None where that is nothing."""
        if self.material is None and material_digest(terms) is not None:
            content = yield from self.session.coordinator.material(self.round_id)
            check_material(terms, content)
            self.material = content
        return self.material

    def _knowing(self) -> MemberPhase:
        """The phase with what this conversation has learned in other cohorts since it was read."""
        history = self.session.store.history()
        return self.phase if ready_of(self.phase).history == history else self.phase.knowing(history)

    def _receive(self, message: Message) -> tuple[Message, ...]:
        session = self.session
        self.phase = self._knowing()
        following, replies = self.phase.receive(message, session.key, session.surroundings.now_s())
        if isinstance(following, Closed) and not isinstance(self.phase, Closed):
            # The evidence first: once the phase is Closed and a later round opens, nothing else holds it.
            assert isinstance(self.phase, Attempting)
            Evidence.of(following, self.phase.uploads).save(session.store.results(self.round_id))
        if isinstance(message, Closing):
            release(session, message)
        if following is not self.phase:
            self._hold(following)
        if not isinstance(following, Attempting):
            session.store.spool(self.cohort).clear()
        if replies:
            session.report(Progress(Step.ANSWERING, detail=type(replies[0]).__name__.lower()))
        return replies

    def _hold(self, phase: MemberPhase) -> None:
        self.session.hold(self.cohort, self.phase, phase, self.round_id)
        self.phase, self.phase_round = phase, self.round_id

    def _lapsed(self) -> bool:
        """Erase the round's secrets if the terms' latest end has passed; whether that ended an attempt."""
        now_s = self.session.surroundings.now_s()
        before, following = self.phase, self.phase.lapse(now_s)
        if following is not self.phase:
            self.session.hold(self.cohort, self.phase, following, self.phase_round)
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
