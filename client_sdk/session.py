"""The shared context of one member's flows."""

import math
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from client_sdk.api import CoordinatorApi
from client_sdk.effects import Flow, Pause
from client_sdk.environment import Environment
from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.evidence import Evidence
from client_sdk.files import FETCH_AGAIN_HELP, FolderLock
from client_sdk.policy import Policy
from client_sdk.progress import Reporter
from client_sdk.result import Result
from client_sdk.store import Store
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Closed, EnrolmentPhase, History, MemberPhase, Ready
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    NO_REASON,
    Certificate,
    Link,
    Lost,
    Manifest,
    Message,
    Roster,
    Study,
    Survivor,
)
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import ROUND_ENDINGS, RoundView, SiteReport, round_name
from veilsum.protocol.study import Content, read_content
from veilsum.study import signed
from veilsum.study.canaries import CanaryPack, fetched_pack
from veilsum.study.progress import explain_early_close, explain_missing_end
from veilsum.system.intervals import POLL_MIN_S


def _do_nothing() -> Flow[None]:
    yield from ()


@dataclass(frozen=True, repr=False)
class Session:
    """One member's key, state, limits and client.

    Attributes:
        lock: of the identity's folder, held until the member is closed.
        given: the roster that the caller passed; None to ask the coordinator each time.
        lanes: chunks in flight.
        transcripts: fetch and replay each round's transcript.
        meanwhile: other work, done after each wait for news.
        site_reports: what this process has reported in rehearsals, by cohort.
    """

    member: str
    key: SigningKey
    store: Store
    lock: FolderLock
    policy: Policy
    coordinator: CoordinatorApi
    report: Reporter
    environment: Environment
    given: Roster | None
    lanes: int
    transcripts: bool
    meanwhile: Callable[[], Flow[None]] = _do_nothing
    site_reports: dict[bytes, SiteReport] = field(default_factory=dict)

    # Roster and study

    def fetch_roster(self) -> Flow[Roster]:
        """Return the roster in force: the caller's, or else the coordinator's newest. Raises as `accept_roster`."""
        return self.accept_roster(
            self.given or (yield from self.coordinator.fetch_roster(self.policy.federation.hex()))
        )

    def accept_roster(self, shown: Roster) -> Roster:
        """Return the caller's roster, or else the one shown, after checking the pinned admin key and the numbers seen.

        Raises:
            PeerFault: wrong-federation, bad-signature or roster-rollback.
        """
        roster = shown if self.given is None else self.given
        self.policy.check_roster(roster)
        self.store.see_roster(roster)
        return roster

    def learn_newest_roster(self, number: int) -> Flow[None]:
        """Fetch the roster in force if the coordinator announces a higher number than the one seen. Raises as `fetch_roster`."""
        seen = self.store.newest_roster()
        if seen is None or number > seen.number:
            yield from self.fetch_roster()

    def fetch_study(self, study_hash: bytes) -> Flow[Content]:
        """Fetch and check a study under the roster in force. Raises as `fetch_roster` and `read_study`."""
        roster = yield from self.fetch_roster()
        study = yield from self.coordinator.fetch_study(self.policy.federation.hex(), study_hash.hex())
        if study.hash != study_hash:
            raise PeerFault(Cause.MALFORMED, "the coordinator shows another study", ["coordinator"])
        return self.read_study(roster, study)

    def read_study(self, roster: Roster, study: Study) -> Content:
        """Check a study up to its approval (STUDY-1 to STUDY-6), remember it, and return its content.

        Raises:
            PeerFault: wrong-federation, bad-signature or study-refused.
        """
        content = signed.read_study(study, roster, self.environment.now_s(), self.store.newest_study)
        self.store.see_study(study)
        return content

    def fetch_canaries(self, content: Content) -> Flow[CanaryPack]:
        """Return a study's canary pack, fetched once.

        Raises:
            PeerFault: not-found before it is published; malformed for other bytes than the study names; study-refused if it does not fit
                the study.
        """
        assert content.rehearsal is not None
        digest = content.rehearsal.pack
        if (kept := self.store.load_pack(digest)) is not None:
            return fetched_pack(content, kept)
        shown = yield from self.coordinator.fetch_canaries(self.policy.federation.hex(), digest)
        pack = fetched_pack(content, shown)
        self.store.keep_pack(digest, shown)
        return pack

    def check_current(self, roster: Roster) -> None:
        """Refuse a roster older than one already seen (roster-rollback; OPEN-25)."""
        seen = self.store.newest_roster()
        if seen is not None and roster.number < seen.number:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"this cohort was formed under roster {roster.number}, and roster {seen.number} is in force: "
                "enrol in a new cohort",
            )

    # State

    def receive_message(self, cohort: bytes, message: Message, round_id: str) -> tuple[Message, ...]:
        """Answer a message by the rules of a cohort's phase. What follows from it is stored first: a closed attempt with its evidence.

        Raises:
            PeerFault: the message breaks a rule; nothing is stored.
        """
        held, headers = self.store.load_phase(cohort), self.store.load_headers(round_id)
        assert held is not None
        phase, now_s, replies = held.phase, self.environment.now_s(), tuple[Message, ...]()
        if isinstance(phase, Ready) and isinstance(message, Certificate) and not message.is_void:
            own = tuple(map(Survivor.from_header, headers))
            following: MemberPhase = Closed.after_erasure(phase, message, own, now_s)
        else:
            following, replies = phase.receive(message, self.key, now_s)
        if isinstance(following, Closed) and not isinstance(phase, Closed):
            if isinstance(phase, Attempting):
                headers = tuple(upload.header for upload in phase.uploads)
            # Before the phase: once a later round opens, nothing else holds it.
            Evidence.of_closed(following, headers).save(self.store.result_folder(round_id))
        if following is not phase:
            self.store_phase(cohort, phase, following, round_id, message)
        return replies

    def store_phase(
        self,
        cohort: bytes,
        before: MemberPhase,
        phase: MemberPhase,
        round_id: str,
        received: Message | None = None,
    ) -> None:
        """Store a phase, with what it has learned since the one before it, and with the header of an upload whose keys it has erased.

        `received` is the message that led to it. It may end an attempt of another round.
        """
        left_out = (
            [received.context] if isinstance(received, Certificate) and self._left_out(received) else []
        )
        erased = before.uploads if isinstance(before, Attempting) and isinstance(phase, Ready) else ()
        with self.store.database.write():
            self.lock.check_lock()
            for upload in erased:
                self.store.keep_header(round_id, upload.header)
            if (learned := history_of(phase)) != (since := history_of(before)):
                self.store.ledger.store_history(learned, since, left_out)
            self.store.store_phase(cohort, phase, round_id)

    def erase_expired(self) -> float:
        """Erase the secrets of every attempt whose latest end has passed, in all cohorts. Called around each request.

        Returns:
            In how many seconds the next of them passes.
        """
        now_s = self.environment.now_s()
        for cohort, expiry_s in list(self.store.expiries.items()):
            if expiry_s <= now_s:
                with self.store.database.write():  # lanes send side by side
                    held = self.store.load_phase(cohort)
                    assert held is not None
                    if (following := held.phase.erase_expired(now_s)) is not held.phase:
                        self.store_phase(cohort, held.phase, following, held.round_id)
                self.store.expiries[cohort] = following.expiry_s
        coming = [expiry_s - now_s for expiry_s in list(self.store.expiries.values()) if expiry_s > now_s]
        return min(coming, default=math.inf)

    def load_verified(self, folder: Path) -> Result:
        """Load a result that was verified before it was saved; a failure now means local damage.

        Raises:
            StateError: one of its files is damaged, or was changed since.
            PeerFault: wrong-federation if another admin's key is pinned now.
        """
        try:
            result = Result.load(folder)
            result.verify(self.policy.federation)
        except PeerFault as fault:
            if fault.cause is Cause.WRONG_FEDERATION:
                raise
            raise StateError(
                f"{folder} no longer holds the result that this member verified ({fault.detail}). {FETCH_AGAIN_HELP}"
            ) from fault
        return result

    def give_up_over(self, phase: MemberPhase, shown_period: str | None = None) -> None:
        """Give up the run of a cohort's phase, which is over. Its records are free by the proofs of LEDGER-5.

        The manifest tells the period. Before there is one, the coordinator's word is taken.
        """
        if shown_period is None or not isinstance(phase, EnrolmentPhase):
            shown_period = ready_of(phase).manifest.period
        self.store.ledger.give_up_over(question_of(phase), shown_period)

    def forget_past_rehearsals(self, question: bytes) -> None:
        """Remove evidence, results and counts of a question's past rehearsals, which a coordinator may repeat without limit.

        A round without a result, which this member may still help to end, is kept until its latest end.
        """
        now_s, needed = self.environment.now_s(), set[bytes]()
        for _, held in self.store.stored_phases():
            if (
                isinstance(held.phase, Closed)
                and now_s < held.phase.attempt.terms.latest_end_s
                and not Result.saved_in(self.store.result_folder(held.round_id))
            ):
                needed.add(held.phase.attempt.context)
        past = self.store.ledger.past_rehearsals(question) - needed
        for name in map(round_name, past):
            if (folder := self.store.result_folder(name)).exists():
                shutil.rmtree(folder)
        history = self.store.ledger.load_history()
        counted = tuple(each for each in history.counted if each.context not in past)
        if counted != history.counted:
            self.store.ledger.store_history(replace(history, counted=counted), history)

    # Rounds

    def fetch_round(self, round_id: str) -> Flow[RoundView]:
        """Fetch a round's view, unverified.

        Raises:
            PeerFault: malformed for another round or an impossible end; wrong-federation for another federation's.
        """
        view = yield from self.coordinator.fetch_round(round_id)
        if view.round != round_id:
            raise PeerFault(
                Cause.MALFORMED, f"asked for round {round_id}, shown {view.round}", ["coordinator"]
            )
        if view.ended != (view.state in ROUND_ENDINGS):
            raise PeerFault(
                Cause.MALFORMED, f"round {round_id} is {view.state}, and ended: {view.ended}", ["coordinator"]
            )
        if view.federation != self.policy.federation.hex():
            raise PeerFault(Cause.WRONG_FEDERATION, f"round {round_id} belongs to {view.federation}")
        return view

    def learn_endings(
        self, shown: Collection[Link] | None = None, runs: tuple[bytes, PeriodKind] | None = None
    ) -> Flow[None]:
        """Learn how this member's open attempts ended. It must before it opens another (OPEN-8 to OPEN-11).

        Args:
            shown: links of the opening to come, in which certificates without an end may stand; None before there is one.
            runs: a question and a kind of periods, whose attempts alone are looked at (SELECT-7, PERIOD-6); None for all.

        Raises:
            PeerFault: outcome-missing if the coordinator does not show an end; certificate-invalid and others if what it shows
                is not one.
        """

        def select_asked(attempts: Collection[Attempt]) -> list[Attempt]:
            return [
                each
                for each in attempts
                if runs in {None, (each.question.digest, kind_of_period(each.manifest.period))}
            ]

        for entry in select_asked(self.store.ledger.load_history().unsettled):
            yield from self.fetch_and_take_end(entry)
        history = self.store.ledger.load_history()
        for entry in select_asked(history.certified):
            if not self._ends_certified(entry.context, history, shown):
                # An Erasure or the admin's Lost may have taken the place of the certificate.
                history = self._close_attempt(history, (yield from self._fetch_end(entry.context)))

    def check_missed(self, links: Sequence[Link]) -> Flow[None]:
        """Check that no certified set holds this member's key without its knowledge (RESTORE-3, RESTORE-4).

        Args:
            links: of the opening to come. Those that the history lacks are looked at, in cohorts that this member sent a card to.

        Raises:
            PeerFault: state-restored if a set does; outcome-missing if what the coordinator shows is not the end of an attempt that a link
                names.
        """
        ledger = self.store.ledger
        for link in links[ledger.load_history().length :]:
            held = self.store.load_phase(link.cohort) if link.reason == NO_REASON else None
            if held is None or ledger.knows_attempt(link.context):
                continue
            document = yield from self._fetch_missed(held.phase, link)
            if document is not None and not self._left_out(document):
                raise restored_fault(
                    self.member,
                    f"round {round_name(link.context)} counts an upload under this key that the folder doesn't know about",
                )

    def _fetch_missed(self, phase: MemberPhase, link: Link) -> Flow[Closing | None]:
        """Return the end of an attempt that this member did not open; None if its cohort formed without this member."""
        try:
            if isinstance(phase, EnrolmentPhase):
                roster, study, manifest = phase.roster, phase.study, (yield from self._fetch_manifest(phase))
            else:
                ready = ready_of(phase)
                roster, study, manifest = ready.roster, ready.study, ready.manifest
            opening = yield from self.coordinator.fetch_opening(round_name(link.context))
            attempt = Attempt(roster, study, manifest, opening)
            attempt.check_context(link.context, "coordinator")
            if self.member not in manifest.members:
                return None
            document = yield from self.coordinator.fetch_closing(link.context, self.policy.federation.hex())
            attempt.check_closing(document)
        except PeerFault as fault:
            raise self.outcome_missing(link.context, fault) from fault
        if attempt.make_link(document) != link:
            raise self.outcome_missing(
                link.context, PeerFault(Cause.CERTIFICATE_INVALID, "its history names another end")
            )
        return document

    def _fetch_manifest(self, phase: EnrolmentPhase) -> Flow[Manifest]:
        """Fetch the manifest of a cohort that this member sent a card to: with its cards, or alone if it formed without this member.

        The context of an attempt proves the manifest: a coordinator may say of any member that it is unknown.
        """
        try:
            cards = yield from self.coordinator.fetch_cards(phase.card.cohort, self.member)
        except PeerFault as fault:
            if fault.cause is not Cause.UNKNOWN_MEMBER:
                raise
            return (yield from self.coordinator.fetch_manifest(phase.card.cohort.hex()))
        return phase.check_shown(cards)

    def _ends_certified(self, context: bytes, history: History, shown: Collection[Link] | None) -> bool:
        """Whether an attempt's certificate is its end: by the links shown, or else by the result or counts that this member has."""
        if shown is not None:
            return any(link.context == context and link in shown for link in history.settled)
        return history.count_of(context) is not None or Result.saved_in(
            self.store.result_folder(round_name(context))
        )

    def _fetch_end(self, context: bytes) -> Flow[Closing]:
        try:
            return (yield from self.coordinator.fetch_closing(context, self.policy.federation.hex()))
        except PeerFault as fault:
            if fault.cause not in {Cause.NOT_FOUND, Cause.WRONG_PHASE}:
                raise
            raise self.outcome_missing(context, fault) from fault

    def outcome_missing(self, context: bytes, fault: PeerFault) -> PeerFault:
        """Say what helps if the coordinator refuses to show how an attempt ended."""
        history = self.store.ledger.load_history()
        known = (each for each in (*history.unsettled, *history.certified) if each.context == context)
        latest_end_s = next((each.terms.latest_end_s for each in known), None)
        return PeerFault(
            Cause.OUTCOME_MISSING, explain_missing_end(context, fault.detail, latest_end_s), ["coordinator"]
        )

    def is_unsettled(self, round_id: str) -> bool:
        """Whether this member took part in a round, and knows no end of it."""
        return any(
            round_name(each.context) == round_id for each in self.store.ledger.load_history().unsettled
        )

    def fetch_and_take_end(self, attempt: Attempt) -> Flow[None]:
        """Fetch how an open attempt ended, and store it. Raises PeerFault as `learn_endings` does."""
        document = yield from self._fetch_end(attempt.context)
        attempt.check_context(document.context, "coordinator")
        latest_end_s = attempt.terms.latest_end_s
        if isinstance(document, Lost) and self.environment.now_s() < latest_end_s:
            attempt.check_lost(document)
            raise PeerFault(Cause.WRONG_PHASE, explain_early_close(attempt.context, latest_end_s), ["admin"])
        cohort, round_id = attempt.manifest.cohort, round_name(attempt.context)
        held = self.store.load_phase(cohort)
        if held is not None and (held.round_id == round_id or isinstance(held.phase, Ready)):
            self.receive_message(cohort, document, round_id)
        else:  # of an identity that has left its phases behind
            self._close_attempt(self.store.ledger.load_history(), document)

    def _close_attempt(self, before: History, document: Closing) -> History:
        history = before.close_attempt(document, self.environment.now_s())
        self.store.ledger.store_history(
            history, before, [document.context] if self._left_out(document) else []
        )
        return history

    def _left_out(self, document: Closing) -> bool:
        """Whether a set was certified without this member, so that its upload is never opened."""
        if not isinstance(document, Certificate) or document.is_void:
            return False
        return all(each.member != self.member for each in document.survivors)

    def pace_poll(self, since_s: float, *, news: bool) -> Flow[None]:
        """Do other work after a long poll that began at `since_s`.

        Without `news`, that is, without anything new for this member to do, then pause until a second has passed since it began: some
        proxies answer long polls at once, and a coordinator may raise a version without reason.
        """
        yield from self.meanwhile()
        left_s = POLL_MIN_S - (self.environment.monotonic_s() - since_s)
        if not news and left_s > 0:
            yield Pause(left_s)


def restored_fault(member: str, why: str) -> PeerFault:
    """Return the fault of a folder that was restored from an older copy (member: Restored folders)."""
    return PeerFault(
        Cause.STATE_RESTORED,
        f"this folder is out of date: {why}. It was restored from an older copy, or another copy of it is in use. It can't tell which of its "
        "records were summed since, so it must not take part any more. Make a new identity "
        f"(`veilsum member new NEW --member {member}`), have the admin put its public key into the next roster, and mark all records that you "
        "have today as summed: `veilsum member mark-summed NEW FILE…`",
        [member],
    )


def question_of(phase: MemberPhase) -> bytes:
    """Return the digest of the question of a phase's study."""
    study = phase.study if isinstance(phase, EnrolmentPhase) else ready_of(phase).study
    return read_content(study.content).question.digest


def history_of(phase: MemberPhase) -> History:
    """Return the history of a phase."""
    return phase.history if isinstance(phase, EnrolmentPhase) else ready_of(phase).history


def ready_of(phase: MemberPhase) -> Ready:
    """Return the keys and history of a phase. Raises Misuse before the manifest."""
    if isinstance(phase, Ready):
        return phase
    if isinstance(phase, Attempting | Closed):
        return phase.ready
    raise Misuse("an enrolling member has no cohort yet")
