"""A member's conversation in one cohort, as a table: where it stands in a round × what it is shown → what it does (`VERBS`, at the end).

`enrolment` leads from the first card to READY. From there the coordinator shows an opening, requests, and an end:

    READY ──opening──▶ ATTEMPTING ──closing──▶ CLOSED ──▶ the result, or the counts with which the run goes on
                           └── its latest end passes, or an end without certificate ──▶ LEFT

The store alone says where a member stands. Each phase is on disk before any message that it speaks leaves, so the conversation may end at any
effect: the next one on the same folder continues. A refusal stores nothing of what it refused. Only an erasure request, a valid end and the
terms' latest end erase. `Session.erase_expired` sees to the latter before any message is looked at.

What is uploaded comes from the reservation that was made before this member enrolled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from client_sdk.api import Asked
from client_sdk.effects import Flow
from client_sdk.enrolment import enrol_in_cohort
from client_sdk.errors import NoResult, NotEnrolled, PeerFault, StateError, fault_in
from client_sdk.evidence import Evidence
from client_sdk.progress import Progress, Step
from client_sdk.recounting import explain_no_sum, is_uncounted, recount_ended, recount_step
from client_sdk.result import TRANSCRIPT_FILE, Result
from client_sdk.session import Session, ready_of
from client_sdk.store import StoredPhase
from client_sdk.upload import mask_upload, send_upload
from client_sdk.verification import verify_result
from veilsum.calibration.judge_tables import ShownHeads
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, EnrolmentPhase, MemberPhase, Opened
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    ERASED_REASON,
    LOST_REASON,
    NO_CONTEXT,
    NO_REASON,
    ErasureRequest,
    Message,
    Opening,
    Refusal,
)
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.record import ResultRecord, mismatch_fault, verify_record
from veilsum.protocol.rest import ROUND_ENDINGS, RoundView, round_name
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.answers import document_names
from veilsum.study.judgement import TABLES_DOCUMENT
from veilsum.study.judging import read_shown
from veilsum.study.progress import RunEnd
from veilsum.study.result_files import check_material_digest, digest_of, file_bytes_max, read_material
from veilsum.study.vectors import Material
from veilsum.system.files import write_durably


class MemberStanding(Enum):
    """Where a member stands in a round, as its store says."""

    READY = auto()
    """It holds the cohort's keys and has not opened the round."""
    ATTEMPTING = auto()
    """It has opened the round, and knows no end of it."""
    CLOSED = auto()
    """It knows the certificate, and has no result."""
    LEFT = auto()
    """It opened the round, and erased its keys or took an end without a certificate: the round is over for it."""


class ShownKind(Enum):
    """What the coordinator shows a member of a round."""

    NOTHING = auto()
    """No request, or the one that was answered last."""
    OPENING = auto()
    REQUEST = auto()
    ERASURE_REQUEST = auto()
    DONE = auto()
    ENDED = auto()
    """An end without a result."""


@dataclass(frozen=True)
class CountedStep:
    """The end of a count: this member has counted it, and the run goes on in the same cohort."""

    cohort: bytes


_STATES_BY_REASON = {NO_REASON: "failed", ERASED_REASON: "erased", LOST_REASON: "lost"}
"""The state of a round without a result, by the reason of its closing; any other reason is a VOID."""
Turn: TypeAlias = Asked | Result | CountedStep
"""What a member is shown next, or the round's outcome."""


def contribute_to_round(session: Session, round_id: str) -> Flow[Result]:
    """Take part in a round until it ends. Resumes a round that was begun, and verifies a finished one again.

    After a count, it waits for the cohort's next round and takes part in that.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.

    Raises:
        NoResult: the round ended without a result, or went on without this member.
        PeerFault: the coordinator broke a rule, or the policy refuses the round.
        ClientError: not enrolled, state damaged, or coordinator unreachable.
    """
    while isinstance(outcome := (yield from run_round(session, round_id)), CountedStep):
        round_id = yield from _following_round(session, outcome.cohort, round_id)
    return outcome


def run_round(
    session: Session, round_id: str, shown: tuple[bytes, Asked] | None = None
) -> Flow[Result | CountedStep]:
    """Take part in one round, from whatever point this member has reached. Raises as `contribute_to_round`.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.
        shown: what `fetch_request` returned; None to ask.
    """
    folder = session.store.result_folder(round_id)
    if Result.saved_in(folder):
        result = session.load_verified(folder)
        # In case a crash came between saving and erasing.
        Conversation(session, result.evidence.manifest.cohort, round_id).erase_shares()
        return result
    cohort, asked = shown or (yield from fetch_request(session, round_id))
    conversation = Conversation(session, cohort, round_id)
    yield from conversation.join_cohort()
    if conversation.standing is MemberStanding.READY:
        yield from finish_other_rounds(session, round_id)
    turn: Turn = asked
    while isinstance(turn, Asked):
        turn = yield from conversation.take_turn(turn)
    return turn


def fetch_request(session: Session, round_id: str) -> Flow[tuple[bytes, Asked]]:
    """Fetch what a round asks of this member, and find its cohort: by the store, by the opening, or else by the round's view.

    A member that is asked nothing because the coordinator refuses to is shown how the round ended.
    """
    store = session.store
    try:
        asked = yield from session.coordinator.fetch_request(round_id, session.member)
    except PeerFault:
        view = yield from session.fetch_round(round_id)
        cohort = bytes.fromhex(view.cohort)
        if not view.ended and store.load_phase(cohort) is not None:
            raise
        return cohort, Asked(None, view.version, view.state, 0)
    known = [cohort for cohort, held in store.stored_phases() if held.round_id == round_id]
    if isinstance(asked.message, Opening) and store.load_phase(asked.message.cohort) is not None:
        known.append(asked.message.cohort)
    if known:
        return known[0], asked
    view = yield from session.fetch_round(round_id)
    return bytes.fromhex(view.cohort), asked


def _take_lost_end(session: Session, attempt: Attempt) -> Flow[None]:
    """Take how a round ended that the coordinator does not know. Raises PeerFault(outcome-missing), also if the admin closed it too early."""
    try:
        yield from session.fetch_and_take_end(attempt)
    except PeerFault as fault:
        if fault.cause is not Cause.WRONG_PHASE:
            raise
        raise PeerFault(Cause.OUTCOME_MISSING, fault.detail, fault.parties) from fault


def finish_other_rounds(session: Session, round_id: str) -> Flow[None]:
    """Take the ends of other rounds that this member dropped out of, in any cohort, so that it may enter this one.

    Raises:
        PeerFault: wrong-sequence if such a round has not ended; outcome-missing if the coordinator does not know it.
    """
    for cohort, held in list(session.store.stored_phases()):
        if isinstance(held.phase, Attempting) and held.round_id != round_id:
            other = Conversation(session, cohort, held.round_id)
            try:
                view = yield from session.fetch_round(held.round_id)
            except PeerFault as fault:
                if fault.cause is not Cause.NOT_FOUND:
                    raise
                yield from _take_lost_end(session, held.phase.attempt)
                continue
            if not view.ended:
                raise PeerFault(
                    Cause.WRONG_SEQUENCE,
                    f"round {held.round_id} is still {view.state}: finish it by contribute({held.round_id!r}) first",
                )
            yield from other.take_closing(Asked(None, view.version, view.state, 0))
            if view.state != "done":
                other.erase_ended(view.state)


def _following_round(session: Session, cohort: bytes, round_id: str) -> Flow[str]:
    """Wait for the round that the operator opens after this one."""
    after: int | None = None
    while True:
        asked_s = session.environment.monotonic_s()
        view = yield from session.coordinator.fetch_cohort(cohort.hex(), after)
        if view.rounds.count(round_id) != 1:
            raise PeerFault(
                Cause.MALFORMED,
                f"the cohort is shown without round {round_id}, or with it twice",
                ["coordinator"],
            )
        later = view.rounds[view.rounds.index(round_id) + 1 :]
        if later:
            newest = yield from session.fetch_round(later[-1])
            end = RunEnd.of_round(newest)
            if not newest.ended or newest.state == "done" or (end is not None and end.ends_run):
                return later[-1]
        if view.step is None:
            why = "the run is over: it went on in another cohort, or can't have a sum"
            raise NoResult(round_id, "missed", PeerFault(Cause.WRONG_PHASE, why))
        session.report(
            Progress(Step.WAITING, detail="the count is done; waiting for the operator to open the next step")
        )
        yield from session.pace_poll(asked_s, news=after is None)
        after = view.version


@dataclass
class Conversation:
    """A member in one round of a cohort.

    Attributes:
        answered: the request that it has answered last.
        material_file: the step's input from earlier steps, kept once fetched so that it cannot be withheld later.
        evidence: of this round, once this conversation has checked and kept it.
        record: of the result, not yet verified, if the reveal was answered with it.
    """

    session: Session
    cohort: bytes
    round_id: str
    answered: Message | None = None
    material_file: bytes | None = None
    evidence: Evidence | None = None
    record: ResultRecord | None = None

    # Where it stands

    @property
    def stored_phase(self) -> StoredPhase:
        """The stored phase. Raises NotEnrolled without one."""
        held = self.session.store.load_phase(self.cohort)
        if held is None:
            raise NotEnrolled(
                f"round {self.round_id} is of cohort {self.cohort.hex()}, which this member holds no keys for: call "
                "enrol(cohort, records) while the cohort takes cards"
            )
        return held

    @property
    def phase(self) -> MemberPhase:
        """The stored phase, with the newest history."""
        return self.stored_phase.phase

    @property
    def standing(self) -> MemberStanding:
        """Where this member stands in the round."""
        held, folder = self.stored_phase, self.session.store.result_folder(self.round_id)
        here = held.round_id == self.round_id
        # First the phase: a crash may have come between the evidence and it.
        if here and isinstance(held.phase, Attempting):
            return MemberStanding.ATTEMPTING
        if self.session.is_unsettled(self.round_id):  # later rounds may have been erased unopened since
            return MemberStanding.LEFT
        if Evidence.saved_in(folder):
            return MemberStanding.CLOSED
        return MemberStanding.LEFT if here else MemberStanding.READY

    @property
    def kept_evidence(self) -> Evidence:
        """The round's stored evidence. Raises StateError if it is missing."""
        return self.evidence or Evidence.load(self.session.store.result_folder(self.round_id))

    def sort_answer(self, asked: Asked) -> ShownKind:
        """Say which column of the table an answer of the coordinator belongs to."""
        if asked.state in ROUND_ENDINGS:
            return ShownKind.DONE if asked.state == "done" else ShownKind.ENDED
        if asked.message is None or asked.message == self.answered:
            return ShownKind.NOTHING
        kinds: dict[type[Message], ShownKind] = {
            Opening: ShownKind.OPENING,
            ErasureRequest: ShownKind.ERASURE_REQUEST,
        }
        return kinds.get(type(asked.message), ShownKind.REQUEST)

    def take_turn(self, asked: Asked) -> Flow[Turn]:
        """Do what the table says. Raises as `contribute_to_round`."""
        shown, phase, began_s = self.sort_answer(asked), self.phase, self.session.environment.monotonic_s()
        if asked.state in ROUND_ENDINGS:
            self.record = asked.record
        turn = yield from VERBS[self.standing, shown](self, asked)
        if shown is not ShownKind.NOTHING:
            self.answered = asked.message
            if isinstance(turn, Asked):
                news = self.phase is not phase or turn.state in ROUND_ENDINGS
                yield from self.session.pace_poll(began_s, news=news)
        return turn

    def join_cohort(self) -> Flow[None]:
        """Join the cohort if a card is all that this member has sent. Raises as `enrol`, and NotEnrolled without a card."""
        if isinstance(self.phase, EnrolmentPhase):
            yield from enrol_in_cohort(self.session, self.cohort, None)
        self.session.policy.check_roster(ready_of(self.phase).roster)  # another admin may be pinned by now

    # What it does

    def wait_for_request(self, asked: Asked) -> Flow[Turn]:
        """Wait for a request newer than the one before."""
        view = yield from self.session.fetch_round(self.round_id)
        self._report_view(view)
        if asked.message is not None and self.session.member in view.waiting_for:
            # Its answer was lost. A certificate, though, is shown to every member, also to one that has answered it.
            self.answered = None
            return asked
        if asked.state == view.state == "erasing":
            raise NoResult(self.round_id, "erasing", fault_in(view))
        return (yield from self._ask_again(asked))

    def enter_round(self, asked: Asked) -> Flow[Turn]:
        """Open the round that is shown, and upload."""
        assert isinstance(asked.message, Opening)
        yield from self.session.learn_newest_roster(asked.roster)
        yield from self._open_round(asked.message)
        return (yield from self.upload_vector(asked))

    def enter_late(self, asked: Asked) -> Flow[Turn]:
        """Open a round that goes on already: this member's upload would not count any more, but it can help to end the attempt."""
        opening = yield from self.session.coordinator.fetch_opening(self.round_id)
        yield from self.session.fetch_roster()
        yield from self._open_round(opening)
        return (yield from self.answer_request(asked))

    def upload_vector(self, asked: Asked) -> Flow[Turn]:
        """Mask this member's vector unless that is done, and send what is missing of its upload."""
        phase, chunks = self.phase, dict[int, bytes]()
        assert isinstance(phase, Attempting)
        if asked.message != phase.opening:
            raise PeerFault(Cause.WRONG_CONTEXT, "another opening is shown for this round", ["coordinator"])
        yield from self.session.learn_newest_roster(asked.roster)
        if isinstance(phase, Opened):
            # Perhaps opened before a restart: policy or roster may be others now.
            self._check_allowed(phase.attempt)
            material = yield from self._fetch_material(phase.attempt)
            if not isinstance(phase := self.phase, Opened):
                raise self._expired_error()  # its keys were erased meanwhile
            phase, chunks = yield from mask_upload(self.session, self.round_id, phase, material)
        assert isinstance(phase, Attempting)
        if not phase.uploads:  # shown again, to a member that came too late to upload
            return (yield from self._ask_again(asked))
        [upload] = phase.uploads
        sending = send_upload(self.session, self.round_id, phase, upload, chunks, asked.version)
        return (yield from self._send_answer(sending, asked))

    def answer_request(self, asked: Asked) -> Flow[Turn]:
        """Answer a request by the phase's rules."""
        if asked.message is None or not self._is_in_round():
            return (yield from self.refuse_entry(asked))
        return (yield from self._send_reply(self._receive_message(asked.message), asked))

    def erase_and_report(self, asked: Asked) -> Flow[Turn]:
        """Erase the attempt's keys and report. A decryptor that never saw the opening is shown it first (ERASE-1)."""
        request = asked.message
        assert isinstance(request, ErasureRequest)
        self._check_names_round(request)
        if self._is_in_round() or self.session.is_unsettled(self.round_id):
            return (yield from self._send_reply(self._receive_message(request), asked))
        opening = yield from self.session.coordinator.fetch_opening(self.round_id)
        self._check_round(opening)
        before = self.phase
        key, now_s = self.session.key, self.session.environment.now_s()
        following, replies = ready_of(before).erase_unopened(opening, request, key, now_s)
        self._store_phase(before, following)
        return (yield from self._send_reply(replies, asked))

    def refuse_entry(self, asked: Asked) -> Flow[Turn]:
        """Refuse to enter a round twice: two sums over the same records, a member apart, show that member's vector."""
        yield from ()
        if isinstance(asked.message, Opening):
            self._check_time(asked.message)
        raise PeerFault(
            Cause.WRONG_CONTEXT,
            "this member has closed this round, and does not open it again",
            ["coordinator"],
        )

    def leave_round(self, asked: Asked) -> Flow[Turn]:
        """End a round whose keys this member has erased. It comes back for the erasure request."""
        if asked.state == "erasing":
            return (yield from self.wait_for_request(asked))
        raise self._expired_error()

    def close_erased(self, asked: Asked) -> Flow[Turn]:
        """Take the closing of a round whose keys this member has erased since; `miss_round` a round that it never opened."""
        verb = self.take_closing if self.session.is_unsettled(self.round_id) else self.miss_round
        return (yield from verb(asked))

    def miss_round(self, _asked: Asked) -> Flow[Turn]:
        """End a round that has a result without this member."""
        yield from ()
        why = "this member did not get the round's opening, or did not get its certificate in time"
        raise NoResult(self.round_id, "missed", PeerFault(Cause.WRONG_PHASE, why))

    def take_closing(self, asked: Asked) -> Flow[Turn]:
        """Take the closing of an ended round: keep the evidence, or erase."""
        self._receive_message((yield from self._fetch_closing(asked)))
        return asked

    def _fetch_closing(self, asked: Asked) -> Flow[Closing]:
        message = asked.message
        if not isinstance(message, Closing):
            shown = yield from self.session.coordinator.fetch_request(self.round_id, self.session.member)
            message = shown.message
        if not isinstance(message, Closing):
            raise PeerFault(
                Cause.WRONG_PHASE,
                "the round has ended, but the coordinator does not show how",
                ["coordinator"],
            )
        self._check_names_round(message)
        return message

    def _check_names_round(self, message: ErasureRequest | Closing) -> None:
        """Refuse what is about another round, before it changes anything of this one."""
        if (named := round_name(message.context)) != self.round_id:
            what = type(message).__name__
            raise PeerFault(Cause.WRONG_CONTEXT, f"the {what} shown is of round {named}", ["coordinator"])

    def take_end(self, asked: Asked) -> Flow[Turn]:
        """Learn how a round ended without a result, erase its shares, and say so."""
        history = self.session.store.ledger.load_history()
        if any(
            round_name(each.context) == self.round_id for each in (*history.unsettled, *history.certified)
        ):
            yield from self.session.learn_endings()
        self.erase_ended(asked.state)
        view = yield from self.session.fetch_round(self.round_id)
        end = RunEnd.of_round(view.model_copy(update={"state": asked.state})) or RunEnd(asked.state)
        if end.ends_run:
            self.session.give_up_over(self.phase)
        raise NoResult(self.round_id, end, fault_in(view))

    def conclude_round(self, _asked: Asked) -> Flow[Turn]:
        """Recount a count, or collect the result."""
        attempt = self.kept_evidence.attempt
        if not attempt.spec.is_disclosed:
            return (yield from self._collect_result())
        if is_uncounted(self.phase, attempt.context):
            yield from recount_ended(self.session, self.cohort, attempt)
            self.erase_shares()
        if self.session.store.ledger.load_history().count_of(attempt.context) is None:
            self.session.give_up_over(self.phase)
            raise PeerFault(
                Cause.COUNT_MISMATCH,
                f"this member has not recounted round {self.round_id}: the run continues without it",
            )
        if (fault := explain_no_sum(self.session, attempt)) is not None:
            self.session.give_up_over(self.phase)
            raise NoResult(self.round_id, RunEnd.COUNTED, fault)
        return CountedStep(self.cohort)

    def erase_shares(self) -> None:
        """Erase the shares of a round that is over."""
        if self._is_in_round() and isinstance(phase := self.phase, Closed):
            self._store_phase(phase, phase.erase_shares())

    def erase_ended(self, state: str) -> None:
        """Erase the shares of a round that ended without a result. Raises PeerFault(wrong-phase) if its closing says otherwise."""
        for link in self.session.store.ledger.load_history().settled:
            ended = _STATES_BY_REASON.get(link.reason, "voided")
            if round_name(link.context) == self.round_id and ended != state:
                raise PeerFault(
                    Cause.WRONG_PHASE,
                    f"the round is shown as {state}, but its closing as {ended}",
                    ["coordinator"],
                )
        self.erase_shares()

    # Opening

    def _open_round(self, opening: Opening) -> Flow[None]:
        """Check an opening, then store it: the round asked for, signature and history, roster, policy, reservation, missed sums, material."""
        self._check_round(opening)
        self._check_time(opening)
        yield from self.session.learn_endings(opening.links)
        if any(is_uncounted(self.phase, context) for context in opening.terms.counts):
            yield from recount_step(self.session, self.cohort)
        before = self.phase
        opened, _ = before.receive(opening, self.session.key, self.session.environment.now_s())
        assert isinstance(opened, Opened)
        self._check_allowed(opened.attempt)
        yield from self.session.check_missed(opening.links)
        yield from self._fetch_material(opened.attempt)
        self._store_phase(before, opened)
        if opened.attempt.spec.kind is PeriodKind.REHEARSAL:
            self.session.forget_past_rehearsals(opened.attempt.question.digest)

    def _check_round(self, opening: Opening) -> None:
        """Refuse an opening of another round than the one asked for, before anything else is looked at."""
        ready = ready_of(self.phase)
        if round_name(Attempt(ready.roster, ready.study, ready.manifest, opening).context) != self.round_id:
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the opening has another context than the round: it is another round's, or the coordinator holds another roster, "
                "manifest or history than this member was shown",
                ["coordinator"],
            )

    def _check_time(self, opening: Opening) -> None:
        if self.session.environment.now_s() >= opening.terms.latest_end_s:
            raise self._expired_error()

    def _check_allowed(self, attempt: Attempt) -> None:
        """Refuse what roster, policy and ledger, as they are now, don't allow (OPEN-25, OPEN-26)."""
        session = self.session
        session.check_current(attempt.roster)
        session.policy.check_opening(attempt, session.environment.now_s())
        session.store.ledger.check_attempt(attempt)

    def _fetch_material(self, attempt: Attempt) -> Flow[Material | ShownHeads]:
        """Return the step's input: from earlier steps, or heads to judge. Raises PeerFault(terms-refused) if its terms name another file."""
        if self.material_file is None and attempt.terms.material != NO_CONTEXT:
            limit_bytes = file_bytes_max(attempt.spec)
            content = yield from self.session.coordinator.fetch_material(self.round_id, limit_bytes)
            check_material_digest(content, attempt.terms.material)
            self.material_file = content
        if self.material_file is not None and attempt.spec.judges:
            return read_shown(attempt.question, self.material_file)
        return read_material(attempt.spec, self.material_file)

    # Answering

    def _receive_message(self, message: Message) -> tuple[Message, ...]:
        session, before = self.session, self.phase
        replies = session.receive_message(self.cohort, message, self.round_id)
        if isinstance(self.phase, Closed) and not isinstance(before, Closed):
            self.evidence = Evidence.load(session.store.result_folder(self.round_id))
        if replies:
            session.report(
                Progress(Step.ANSWERING, detail=f"sending the {type(replies[0]).__name__.lower()}")
            )
        return replies

    def _send_reply(self, replies: tuple[Message, ...], asked: Asked) -> Flow[Asked]:
        """Send the reply to a request, if it has one, and return the next request."""
        if not replies:
            return (yield from self._ask_again(asked))
        [reply] = replies
        if isinstance(reply, Refusal):
            detail = f"refused to sign: {reply.cause}"
            self.session.report(Progress(Step.ANSWERING, phase=asked.state, detail=detail))
        sending = self.session.coordinator.send_answer(self.round_id, reply, asked.version)
        return (yield from self._send_answer(sending, asked))

    def _send_answer(self, sending: Flow[Asked | None], asked: Asked) -> Flow[Asked]:
        """Send an answer, and return the next request, even if the round has moved on without the answer."""
        try:
            following = yield from sending
        except StateError:
            if self.standing is MemberStanding.LEFT:  # what its upload is made of was erased meanwhile
                raise self._expired_error() from None
            raise
        except PeerFault as fault:
            if fault.cause is not Cause.WRONG_PHASE:
                raise
            # Also where the answer to the last chunk was lost on its way: then the upload is whole.
            detail = "the round has moved on; the certificate will show whether this upload is in the sum"
            self.session.report(Progress(Step.WAITING, phase=asked.state, detail=detail))
            following = None
        return following or (yield from self._ask_again(asked))

    def _ask_again(self, before: Asked) -> Flow[Asked]:
        """Wait for a request newer than the one before."""
        session = self.session
        # Other reports may take days, so do not wait for them.
        after = None if before.state == "erasing" else before.version
        asked_s = session.environment.monotonic_s()
        asked = yield from session.coordinator.fetch_request(self.round_id, session.member, after)
        asks = asked.message is not None and asked.message != before.message
        yield from session.pace_poll(asked_s, news=asks or asked.state in ROUND_ENDINGS)
        return asked

    # Collecting

    def _collect_result(self) -> Flow[Result]:
        """Fetch, verify and keep the result, then erase the shares."""
        session, coordinator, name = self.session, self.session.coordinator, self.round_id
        session.report(Progress(Step.VERIFYING, detail="verifying the result"))
        folder = session.store.result_folder(name)
        evidence = self.kept_evidence
        record = self.record or (yield from coordinator.fetch_record(name))
        verify_record(record, evidence.roster.coordinator)  # before all that it names is fetched
        if self._is_in_round() and isinstance(phase := self.phase, Closed):
            kept = [dealer.member for dealer in phase.evicted if dealer.member not in record.evicted]
            if kept:
                raise mismatch_fault(f"the record keeps {', '.join(kept)}, proved false to this member")
        spec = evidence.attempt.spec
        limit_bytes = file_bytes_max(spec)
        head_file = None if record.head is None else (yield from coordinator.fetch_weights(name, limit_bytes))
        documents = yield from self._fetch_documents(spec, record, limit_bytes)
        evictions = (yield from coordinator.fetch_evictions(name)) if record.evicted else None
        transcript = None
        if session.transcripts:
            transcript = yield from coordinator.fetch_transcript(name)
            # Before it is replayed: if it shows that the coordinator is false, it is the proof for others.
            write_durably(folder / TRANSCRIPT_FILE, transcript)
        yield from self._fetch_material(evidence.attempt)
        result = Result(evidence, record, head_file, evictions, transcript, documents, self.material_file)
        if self.evidence is None:
            result.verify(session.policy.federation)
        else:
            verify_result(result)
        result.check_counts(session.store.ledger.load_history())
        result.save(folder)
        self.erase_shares()
        summed, members = len(result.summed), len(evidence.attempt.members)
        detail = f"verified the result of {summed} of {members} members"
        session.report(Progress(Step.DONE, done=summed, total=members, detail=detail))
        return result

    def _fetch_documents(
        self, spec: RoundSpec, record: ResultRecord, limit_bytes: int
    ) -> Flow[dict[str, bytes]]:
        """Fetch the documents of a signed record, after checking that the study publishes them (result-mismatch)."""
        names = [each.name for each in record.documents]
        published = {TABLES_DOCUMENT} if spec.judges else document_names(spec)
        if len({*names}) < len(names) or not published.issuperset(names):
            raise mismatch_fault(
                f"the record names the documents {', '.join(names)}; the study publishes {', '.join(sorted(published)) or 'none'}"
            )
        documents = dict[str, bytes]()
        for each in record.documents:
            content = yield from self.session.coordinator.fetch_document(
                self.round_id, each.name, limit_bytes
            )
            if digest_of(content) != each.sha256:
                raise mismatch_fault(f"the document {each.name} does not match the record")
            documents[each.name] = content
        return documents

    # State

    def _is_in_round(self) -> bool:
        """Whether the stored phase is of this round's attempt."""
        held = self.stored_phase
        return held.round_id == self.round_id and isinstance(held.phase, Attempting | Closed)

    def _store_phase(self, before: MemberPhase, following: MemberPhase) -> None:
        if following is not before:
            self.session.store_phase(self.cohort, before, following, self.round_id)

    def _expired_error(self) -> NoResult:
        fault = PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end passed without a certificate")
        return NoResult(self.round_id, "lapsed", fault)

    def _report_view(self, view: RoundView) -> None:
        self.session.report(
            Progress(
                Step.WAITING,
                phase=view.state,
                done=len(view.members) - len(view.waiting_for),
                total=len(view.members),
                waiting_for=view.waiting_for,
                until_s=view.deadline_s,
            )
        )


# fmt: off
_SHOWN_COLUMNS = (ShownKind.OPENING, ShownKind.REQUEST, ShownKind.ERASURE_REQUEST, ShownKind.DONE, ShownKind.ENDED, ShownKind.NOTHING)
_C = Conversation
_STANDING_ROWS: dict[MemberStanding, tuple[Callable[[Conversation, Asked], Flow[Turn]], ...]] = {
    # shown:                    an opening        another request    an erasure request   done                ended without a result nothing new
    MemberStanding.READY:      (_C.enter_round,   _C.enter_late,     _C.erase_and_report, _C.miss_round,      _C.take_end,           _C.wait_for_request),
    MemberStanding.ATTEMPTING: (_C.upload_vector, _C.answer_request, _C.erase_and_report, _C.take_closing,    _C.take_closing,       _C.wait_for_request),
    MemberStanding.CLOSED:     (_C.refuse_entry,  _C.answer_request, _C.erase_and_report, _C.conclude_round,  _C.take_end,           _C.wait_for_request),
    MemberStanding.LEFT:       (_C.refuse_entry,  _C.leave_round,    _C.erase_and_report, _C.close_erased,    _C.take_end,           _C.leave_round),
}
# fmt: on
VERBS = {
    (standing, shown): verb
    for standing, row in _STANDING_ROWS.items()
    for shown, verb in zip(_SHOWN_COLUMNS, row, strict=True)
}
"""The conversation: where a member stands × what it is shown → what it does."""
