"""M1 to M5 as a flow: from a round's opening to its verified result, or the reason that there is none.

    contribute ──▶ known already? ──▶ RoundFlow.until_end ──▶ close ──▶ collect ──▶ Result
        ▲                              │                        └──▶ count ──▶ the next round of the cohort
        └─── an indicator leads on to the sum that withholds by its counts ────────┘
                                       │  opening: history, policy, ledger, mask, upload
                                       │  deliveries, freeze, void, evictions, erasure: answered by protocol.member
                                       └─ certificate: evidence kept, reveal sent

What is uploaded comes from the reservation that was made before this member enrolled. Each phase is on disk before any message that it
speaks leaves, so the flow may end at any effect: the next one on the same folder reads from the store how far it came, and asks the
coordinator what is next.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace

from client_sdk.api import Asked
from client_sdk.effects import Flow
from client_sdk.enrolment import enrol
from client_sdk.errors import NoResult, NotEnrolled, PeerFault, fault_in
from client_sdk.evidence import Evidence
from client_sdk.progress import Progress, Step
from client_sdk.result import TRANSCRIPT, Result
from client_sdk.session import Session, ready_of
from client_sdk.upload import mask, send
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, Enrolled, MemberPhase, Opened
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import NO_CONTEXT, ErasureRequest, Message, Opening, Refusal
from veilsum.protocol.record import ResultRecord, verify_record
from veilsum.protocol.rest import ENDINGS, RoundView, round_name
from veilsum.protocol.study import check_enough_rows
from veilsum.study.result_files import read_material
from veilsum.study.vectors import Material
from veilsum.system.files import write_durably


def contribute(session: Session, round_id: str) -> Flow[Result]:
    """Take part in a round until it ends. Resumes a round that was begun, and verifies a finished one again.

    After an indicator round, it recounts it, waits for the cohort's next round and takes part in that.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.

    Raises:
        NoResult: the round ended without a result, or went on without this member.
        PeerFault: the coordinator broke a rule, or the policy refuses the round.
        ClientError: not enrolled, state damaged, or coordinator unreachable.
    """
    while True:
        result = yield from take_part(session, round_id)
        if isinstance(result, Result):
            return result
        round_id = yield from _following_round(session, result, round_id)


def take_part(
    session: Session, round_id: str, shown: RoundView | Asked | None = None
) -> Flow[Result | bytes]:
    """Take part in one round. Returns its result, or an indicator's cohort. Raises as `contribute`.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.
        shown: what `meet` returned; None to ask.
    """
    folder = session.store.results(round_id)
    if Result.saved_in(folder):
        result = session.verified(folder)
        _forget_shares(session, round_id, result.evidence.manifest.cohort)
        return result
    if shown is None:
        shown = yield from meet(session, round_id)
    cohort = _cohort_of(shown)
    session.lapse_others(cohort)
    round_flow = yield from _flow_of(session, round_id, cohort)
    if not (round_flow.phase_round == round_id or Evidence.saved_in(folder)):
        yield from round_flow.close_earlier()
        if isinstance(shown, Asked) or not shown.ended:
            yield from session.settle()
    yield from round_flow.close((yield from round_flow.until_end(shown)))
    if (attempt := round_flow.kept.attempt).spec.indicator:
        yield from round_flow.check_counted()
        if (fault := too_few_rows(session, attempt)) is not None:
            raise NoResult(round_id, "counted", fault)
        return cohort
    return (yield from round_flow.collect())


def meet(session: Session, round_id: str) -> Flow[RoundView | Asked]:
    """Fetch a round's opening if this member has to answer it, or else the round's view.

    The opening is all that a member needs to begin. The view explains everything else, refusals included.
    """
    with suppress(PeerFault):
        asked = yield from session.coordinator.request(round_id, session.member)
        opening = asked.message if asked.state not in ENDINGS else None
        if isinstance(opening, Opening) and session.store.held(opening.cohort) is not None:
            return asked
    return (yield from session.round(round_id))


def _cohort_of(shown: RoundView | Asked) -> bytes:
    if isinstance(shown, RoundView):
        return bytes.fromhex(shown.cohort)
    assert isinstance(shown.message, Opening)
    return shown.message.cohort


def too_few_rows(session: Session, indicator: Attempt) -> PeerFault | None:
    """Return why no sum can follow an indicator that this member has counted, so that the run is over; None if it can."""
    counted = session.store.ledger.history().count_of(indicator.context)
    assert counted is not None
    try:
        check_enough_rows(indicator.question, counted.holders)
    except PeerFault as fault:
        return fault
    return None


def _forget_shares(session: Session, round_id: str, cohort: bytes) -> None:
    """Erase the shares of a saved round, in case a crash came between saving and erasing."""
    if (held := session.store.held(cohort)) is not None:
        RoundFlow(session, round_id, cohort, held.phase, held.round_id).erase_shares()


def _flow_of(session: Session, round_id: str, cohort: bytes) -> "Flow[RoundFlow]":
    held = session.store.held(cohort)
    if held is not None and isinstance(held.phase, Enrolled):
        yield from enrol(session, cohort, None)
        held = session.store.held(cohort)
    if held is None:
        raise NotEnrolled(
            f"round {round_id} is of cohort {cohort.hex()}, which this member holds no keys for: call "
            "enrol(cohort, records) while the cohort takes cards"
        )
    session.policy.check_roster(ready_of(held.phase).roster)  # another admin may be pinned by now
    return RoundFlow(session, round_id, cohort, held.phase, held.round_id)


def _following_round(session: Session, cohort: bytes, round_id: str) -> Flow[str]:
    """Wait for the round that the operator opens after this one."""
    after: int | None = None
    while True:
        asked_s = session.environment.monotonic_s()
        view = yield from session.coordinator.cohort(cohort.hex(), after)
        if view.rounds.count(round_id) != 1:
            raise PeerFault(
                Cause.MALFORMED,
                f"the cohort is shown without round {round_id}, or with it twice",
                ["coordinator"],
            )
        later = view.rounds[view.rounds.index(round_id) + 1 :]
        if later:
            newest = yield from session.round(later[-1])
            if not newest.ended or newest.state == "done":
                return later[-1]
        session.report(
            Progress(Step.WAITING, detail="the classes are counted; the operator opens the next round")
        )
        yield from session.waited(asked_s, news=after is None)
        after = view.version


@dataclass
class RoundFlow:
    """A member in one round.

    Attributes:
        phase: as it is stored.
        phase_round: the round that `phase` is in or was in last.
        material_file: the step's input from earlier steps, kept once fetched so that it cannot be withheld later.
        evidence: of this round, once this conversation has checked and kept it.
        record: of the result, not yet verified, if the reveal was answered with it.
    """

    session: Session
    round_id: str
    cohort: bytes
    phase: MemberPhase
    phase_round: str
    material_file: bytes | None = None
    evidence: Evidence | None = None
    record: ResultRecord | None = None

    @property
    def kept(self) -> Evidence:
        """The round's stored evidence. Raises StateError if it is missing."""
        return self.evidence or Evidence.load(self.session.store.results(self.round_id))

    @property
    def taking_part(self) -> bool:
        """Whether the member has seen this round's opening."""
        return self.phase_round == self.round_id and isinstance(self.phase, Attempting | Closed)

    def until_end(self, shown: RoundView | Asked) -> Flow[str]:
        """Answer every request until the round has ended, and return its last state.

        Args:
            shown: what `meet` returned.

        Raises:
            NoResult: lapsed; or erasing, once this member has reported.
        """
        if isinstance(shown, RoundView):
            self._report(shown)
            if shown.ended:
                return shown.state
            shown = yield from self._ask(None)
        asked, answered = shown, None
        while asked.state not in ENDINGS:
            if self._lapsed() and asked.state != "erasing":
                fault = PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end passed without a certificate")
                raise NoResult(self.round_id, "lapsed", fault)
            message = asked.message
            if message is None or message == answered:
                # A certificate is shown to every member, also to one that has answered it.
                view = yield from self.session.round(self.round_id)
                self._report(view)
                if message is None or self.session.member not in view.waiting_for:
                    if asked.state == view.state == "erasing":
                        raise NoResult(self.round_id, "erasing", fault_in(view))
                    asked = yield from self._ask(asked)
                    continue
            began_s, phase = self.session.environment.monotonic_s(), self.phase
            asked, answered = (yield from self._answer(message, asked)), message
            yield from self.session.waited(began_s, news=self.phase is not phase or asked.state in ENDINGS)
        if self.taking_part and isinstance(self.phase, Attempting) and isinstance(asked.message, Closing):
            self._receive(asked.message)
        self.record = asked.record
        return asked.state

    def _ask(self, before: Asked | None) -> Flow[Asked]:
        """Wait for a request newer than the one before."""
        session = self.session
        if before is None:
            return (yield from session.coordinator.request(self.round_id, session.member))
        # Other reports may take days, so do not wait for them.
        after = None if before.state == "erasing" else before.version
        asked_s = session.environment.monotonic_s()
        asked = yield from session.coordinator.request(self.round_id, session.member, after)
        asks = asked.message is not None and asked.message != before.message
        yield from session.waited(asked_s, news=asks or asked.state in ENDINGS)
        return asked

    def close(self, state: str) -> Flow[None]:
        """Process the closing of an ended round: erase what is no longer needed, and keep the evidence.

        Raises:
            NoResult: voided, erased, failed, lost, or missed.
        """
        if self.taking_part and isinstance(self.phase, Attempting):
            shown = yield from self.session.coordinator.request(self.round_id, self.session.member)
            if not isinstance(shown.message, Closing):
                raise PeerFault(
                    Cause.WRONG_PHASE, "the round has ended, but does not show how", ["coordinator"]
                )
            self._receive(shown.message)
        elif state in {"erased", "lost"}:
            yield from self.session.settle()
        if state != "done":
            self.erase_shares()
            raise NoResult(self.round_id, state, fault_in((yield from self.session.round(self.round_id))))
        if not Evidence.saved_in(self.session.store.results(self.round_id)):
            fault = PeerFault(
                Cause.WRONG_PHASE, "this member did not see its opening, or not its certificate in time"
            )
            raise NoResult(self.round_id, "missed", fault)

    def collect(self) -> Flow[Result]:
        """Fetch, verify and keep the result, then erase the shares."""
        session, coordinator, name = self.session, self.session.coordinator, self.round_id
        session.report(Progress(Step.VERIFYING, phase="done"))
        folder = session.store.results(name)
        evidence = self.kept
        record = self.record or (yield from coordinator.result(name))
        verify_record(record, evidence.roster.coordinator)  # before all that it names is fetched
        head_file = None if record.head is None else (yield from coordinator.weights(name))
        documents = {}
        for each in record.documents:
            documents[each.name] = yield from coordinator.document(name, each.name)
        evictions = (yield from coordinator.evictions(name)) if record.evicted else None
        transcript = None
        if session.transcripts:
            transcript = yield from coordinator.transcript(name)
            # Before it is replayed: if it shows that the coordinator is false, it is the proof for others.
            write_durably(folder / TRANSCRIPT, transcript)
        yield from self._material(evidence.attempt)
        result = Result(evidence, record, head_file, evictions, transcript, documents, self.material_file)
        if self.evidence is None:
            result.verify(session.policy.federation)
        else:
            result.verify_against_evidence()
        result.check_counts(session.store.ledger.history())
        result.save(folder)
        self.erase_shares()
        members = len(evidence.attempt.members)
        session.report(Progress(Step.DONE, phase="done", done=len(result.summed), total=members))
        return result

    def check_counted(self) -> Flow[None]:
        """Recount a finished indicator, and erase its shares. Repeating it has no effect.

        Raises:
            PeerFault: indicator-mismatch if this member went on without counting; and as `_count`.
        """
        context = self.kept.attempt.context
        self.phase = self._knowing()
        if self.phase_round == self.round_id and self._uncounted(context):
            yield from self._count()
            self.erase_shares()
        if self.session.store.ledger.history().count_of(context) is None:
            raise PeerFault(
                Cause.INDICATOR_MISMATCH,
                f"this member went on without counting indicator {self.round_id}: its sum goes on without this member",
            )

    def _uncounted(self, context: bytes) -> bool:
        """Whether this member closed the indicator of a context, and can still count it."""
        phase = self.phase
        return (
            isinstance(phase, Closed)
            and phase.attempt.context == context
            and phase.attempt.spec.indicator
            and phase.history.count_of(context) is None
        )

    def _count(self) -> Flow[None]:
        """Fetch the indicator's disclosure and recount it, after the proofs against evicted members.

        Raises:
            PeerFault: disclosure-invalid or eviction-invalid if the coordinator does not show what members sent.
        """
        session, before = self.session, self.phase
        session.report(Progress(Step.COUNTING, detail="checking how many members hold each class"))
        evictions = yield from session.coordinator.evictions(self.phase_round)
        disclosure = yield from session.coordinator.disclosure(self.phase_round, session.member)
        messages: tuple[Message, ...] = (evictions, disclosure) if evictions.proofs else (disclosure,)
        for message in messages:
            now_s = session.environment.now_s()
            self.phase, _ = self.phase.receive(message, session.key, now_s)
        session.hold(self.cohort, before, self.phase, self.phase_round)

    def close_earlier(self) -> Flow[None]:
        """Close the rounds that this member dropped out of, in any cohort, so that it may enter this one.

        Raises:
            PeerFault: wrong-sequence if such a round has not ended.
        """
        if isinstance(self.phase, Attempting):
            earlier = replace(self, round_id=self.phase_round)
            yield from earlier.finish()
            self.phase = earlier.phase
        for cohort, held in list(self.session.store.cohorts(but=self.cohort)):
            if isinstance(held.phase, Attempting):
                yield from RoundFlow(self.session, held.round_id, cohort, held.phase, held.round_id).finish()

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
            yield from self.close(view.state)
        except NoResult:
            return

    def erase_shares(self) -> None:
        """Erase the shares of a round that is over."""
        if self.taking_part and isinstance(self.phase, Closed):
            following = self.phase.settled()
            if following is not self.phase:
                self._hold(following)

    def _answer(self, message: Message, asked: Asked) -> Flow[Asked]:
        """Answer a request, and return the next one."""
        if isinstance(message, Opening):
            return (yield from self._opening(message, asked))
        if isinstance(message, ErasureRequest):
            yield from self._prepare_erasure(message)
        elif not self.taking_part and self.phase_round == self.round_id:
            raise NoResult(self.round_id, "lapsed", PeerFault(Cause.TERMS_EXPIRED))
        elif not self.taking_part:
            # It comes late: its upload would not count any more, but it can still help to end the attempt.
            opening = yield from self.session.coordinator.opening(self.round_id)
            yield from self.session.roster()
            yield from self._open(opening)
        if not (replies := self._receive(message)):
            return (yield from self._ask(asked))
        [reply] = replies  # to one request
        if isinstance(reply, Refusal):
            detail = f"refused to sign, {reply.cause}"
            self.session.report(Progress(Step.ANSWERING, phase=asked.state, detail=detail))
        answer = self.session.coordinator.answer(self.round_id, reply, asked.version)
        return (yield from self._sent(answer, asked))

    def _sent(self, sending: Flow[Asked | None], asked: Asked) -> Flow[Asked]:
        """Send an answer, and return the next request, even if the round has moved on without the answer."""
        try:
            following = yield from sending
        except PeerFault as fault:
            if fault.cause is not Cause.WRONG_PHASE:
                raise
            # Also where the answer to the last chunk was lost on its way: then the upload is whole.
            detail = "the round has moved on; the certificate will show what is counted"
            self.session.report(Progress(Step.WAITING, phase=asked.state, detail=detail))
            following = None
        return following or (yield from self._ask(asked))

    def _prepare_erasure(self, request: ErasureRequest) -> Flow[None]:
        """Show the opening to a member that never saw it: it erases the keys of the sequence."""
        entries = ready_of(self.phase).history.unsettled
        if not self.taking_part and all(entry.context != request.context for entry in entries):
            opening = yield from self.session.coordinator.opening(self.round_id)
            if self.session.environment.now_s() < opening.terms.latest_end_s:
                raise PeerFault(
                    Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
                )
            self._receive(opening)

    def _opening(self, opening: Opening, asked: Asked) -> Flow[Asked]:
        yield from self.session.see_newest(asked.roster)
        if not (self.taking_part and isinstance(self.phase, Attempting)):
            yield from self._open(opening)
        elif opening != self.phase.opening:
            raise PeerFault(Cause.WRONG_CONTEXT, "another opening is shown for this round", ["coordinator"])
        elif isinstance(self.phase, Opened):
            # Opened before a restart: policy or roster may be others now.
            self._check_allowed(self.phase.attempt)
        chunks: dict[int, bytes] = {}
        if isinstance(self.phase, Opened):
            material = yield from self._material(self.phase.attempt)
            self.phase, chunks = yield from mask(self.session, self.round_id, self.phase, material)
        assert isinstance(self.phase, Attempting)
        if not self.phase.uploads:  # shown again, to a member that came too late to upload
            return (yield from self._ask(asked))
        [upload] = self.phase.uploads
        sending = send(self.session, self.round_id, self.phase, upload, chunks, asked.version)
        return (yield from self._sent(sending, asked))

    def _open(self, opening: Opening) -> Flow[None]:
        """Check an opening, then store it: signature and history, the roster's age, policy, reservation, and the step's material."""
        session, now_s = self.session, self.session.environment.now_s()
        if self.phase_round == self.round_id or Evidence.saved_in(session.store.results(self.round_id)):
            # One call is one attempt: two sums over the same records, a member apart, show that member's vector.
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "this round is over for this member: it opens no other one",
                ["coordinator"],
            )
        self.phase = self._knowing()
        if self._uncounted(opening.terms.indicator):
            yield from self._count()
        opened, _ = self.phase.receive(opening, session.key, now_s)
        if not isinstance(opened, Opened):  # shown too late: the keys of the sequence are erased
            self._hold(opened)
            raise NoResult(self.round_id, "lapsed", PeerFault(Cause.TERMS_EXPIRED))
        attempt = opened.attempt
        self._check_allowed(attempt)
        if round_name(attempt.context) != self.round_id:
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the coordinator computes another context from this opening: it holds another roster, manifest or "
                "history than this member was shown",
                ["coordinator"],
            )
        yield from self._material(attempt)
        self._hold(opened)

    def _check_allowed(self, attempt: Attempt) -> None:
        """Refuse what roster, policy and ledger, as they are now, don't allow (docs/protocol.md §4.3, clauses 10 and 11, and §7.3)."""
        session = self.session
        session.check_current(attempt.roster)
        session.policy.check_opening(attempt, session.environment.now_s())
        session.store.ledger.check(attempt)

    def _material(self, attempt: Attempt) -> Flow[Material]:
        """Return the step's input from earlier steps. Raises PeerFault(terms-refused) if its terms name another file."""
        if self.material_file is None and attempt.terms.material != NO_CONTEXT:
            content = yield from self.session.coordinator.material(self.round_id)
            if hashlib.sha256(content).digest() != attempt.terms.material:
                raise PeerFault(
                    Cause.TERMS_REFUSED,
                    "the material does not match the SHA-256 in the signed terms",
                    ["coordinator"],
                )
            self.material_file = content
        return read_material(attempt.spec, self.material_file)

    def _knowing(self) -> MemberPhase:
        """The phase with what this conversation has learned in other cohorts since it was read."""
        history = self.session.store.ledger.history()
        return self.phase if ready_of(self.phase).history == history else self.phase.knowing(history)

    def _receive(self, message: Message) -> tuple[Message, ...]:
        session = self.session
        self.phase = self._knowing()
        following, replies = self.phase.receive(message, session.key, session.environment.now_s())
        if isinstance(following, Closed) and not isinstance(self.phase, Closed):
            # The evidence first: once the phase is Closed and a later round opens, nothing else holds it.
            assert isinstance(self.phase, Attempting)
            self.evidence = Evidence.of(following, self.phase.uploads)
            self.evidence.save(session.store.results(self.round_id))
        if following is not self.phase:
            self._hold(following)
        if replies:
            session.report(Progress(Step.ANSWERING, detail=type(replies[0]).__name__.lower()))
        return replies

    def _hold(self, phase: MemberPhase) -> None:
        self.session.hold(self.cohort, self.phase, phase, self.round_id)
        self.phase, self.phase_round = phase, self.round_id

    def _lapsed(self) -> bool:
        """Erase the round's secrets if the terms' latest end has passed. Returns whether that ended an attempt."""
        now_s = self.session.environment.now_s()
        self.phase = self._knowing()
        before, following = self.phase, self.phase.lapse(now_s)
        if following is not self.phase:
            self.session.hold(self.cohort, self.phase, following, self.phase_round)
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
