"""A member that takes part by itself: it waits for runs of approved studies, and follows each to its verified result.

    next ──▶ enrol where a run takes cards ──▶ each cohort: its manifest, then its open round ──▶ result? ──▶ wait for news
                       ▲                                         │                                        │
                       └── also whenever a round lets it wait ───┘◀───────────────────────────────────────┘

What it does in a cohort:

    stands  | taking cards           | pairing or formed        | failed
    --------+------------------------+--------------------------+--------
    no card | answer, send the card  | pass                     | pass
    carded  | wait                   | check the manifest, pair | pass
    paired  | wait                   | take the others' ciphertexts, or pair again under a newer manifest | pass
    joined  | wait                   | the table of `client_sdk.conversation`, for the newest round

An agent retries a coordinator that is out of reach, or shows no runs, without limit; only with `once` it gives up. Everything that it needs
after a crash is in the store: a new agent on the same folder continues.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from client_sdk.api import Asked, Invitation, ShownInCohort
from client_sdk.conversation import fetch_request, run_round
from client_sdk.effects import Flow, Pause
from client_sdk.enrolment import pair_in_cohort, report_enrolment, send_card
from client_sdk.errors import (
    Declined,
    Misuse,
    NoResult,
    NotEnrolled,
    PeerFault,
    UnexpectedAnswer,
    Unreachable,
    fault_in,
)
from client_sdk.evidence import Evidence
from client_sdk.progress import Progress, Step
from client_sdk.records import Records
from client_sdk.recounting import explain_no_sum
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import Session, question_of
from client_sdk.store import StoredPhase
from veilsum.calibration.errors import CalibrationError
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, EnrolmentPhase, MemberPhase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Ciphertexts
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import ROUND_ENDINGS, CohortView, RunsView, RunView
from veilsum.study.progress import RunEnd
from veilsum.system.intervals import RUNS_POLL_S, ChangePacer


class RunsFeed:
    """The federation's runs as the coordinator shows them, and the pace at which this member asks for them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._view: RunsView | None = None
        self._fetched_s = -RUNS_POLL_S
        self._pacer = ChangePacer()
        self.is_news = False
        """Whether the last wait ended with this view."""

    @property
    def runs(self) -> dict[str, RunView]:
        """The runs by cohort."""
        return {} if self._view is None else {run.cohort: run for run in self._view.runs}

    @property
    def is_due(self) -> bool:
        """Whether it is time to look for runs, while a round keeps the member waiting."""
        return self._session.environment.monotonic_s() - self._fetched_s >= RUNS_POLL_S

    def fetch_runs(self) -> Flow[None]:
        """Fetch the runs, unless the last wait has brought them."""
        if not self.is_news:
            self._view = yield from self._session.coordinator.fetch_runs(
                self._session.policy.federation.hex()
            )
        self.is_news, self._fetched_s = False, self._session.environment.monotonic_s()

    def wait_for_news(self) -> Flow[None]:
        """Wait until a cohort or round of the federation begins or ends, or a long poll ends."""
        session, asked_s = self._session, self._session.environment.monotonic_s()
        known = None if self._view is None else self._view.revision
        self._view = yield from session.coordinator.fetch_runs(session.policy.federation.hex(), known)
        at_once = self._pacer.follow_at_once(asked_s)
        yield from session.pace_poll(asked_s, news=self._view.revision != known and at_once)
        self.is_news = True


def _is_restored(error: Exception) -> bool:
    """Whether this member's folder was restored from an older copy: it takes part in nothing more."""
    return isinstance(error, PeerFault) and error.cause is Cause.STATE_RESTORED


class Agent:
    """Steps through the runs of a federation.

    Args:
        session: the member.
        records: all of its records.
        once: stop after one run over data, or after one of `period`.
        period: take part in runs of this period and in rehearsals only; None for any.
    """

    def __init__(self, session: Session, records: Records, *, once: bool, period: str | None) -> None:
        self._session = replace(session, meanwhile=self._enrol_meanwhile)
        self._alone, self._records, self._once, self._period = session, records, once, period
        self._feed = RunsFeed(session)
        self._passed = set[str]()
        """Cohorts that need nothing more of this member, or that it takes no part in."""
        self._sent = set[str]()
        """Cohorts that this process has sent a card to."""
        self._followed = set[str]()
        """Of the cohorts that this member has sent a card to, those with a run that was not over when this agent saw it."""
        self._ended = False

    def next_result(self) -> Flow[Result | None]:
        """Continue until a run has its result, and return it; None at the end.

        Raises:
            Declined, PeerFault, Misuse, CalibrationError, Unreachable: the error of the run, only with `once`.
            PeerFault: state-restored.
            ClientError: the state is damaged.
        """
        while not self._ended:
            try:
                result = yield from self._look_for_work()
            except (Unreachable, UnexpectedAnswer, PeerFault) as error:
                if self._once or _is_restored(error):
                    raise
                self._report_detail(f"waiting for the coordinator, still trying: {error}")
                yield Pause(RUNS_POLL_S)
                continue
            if result is None:
                continue
            self._ended = self._once and self._is_wanted(result.record.period)
            if result.spec.kind is not PeriodKind.REHEARSAL:
                return result
            self._report_rehearsed(result)
        return None

    def _is_wanted(self, period: str) -> bool:
        """Whether an agent for one run ends with a run of this period: it does not with a rehearsal, nor with a judgement not asked for."""
        return period == self._period or kind_of_period(period) is PeriodKind.DATA

    def _report_rehearsed(self, result: Result) -> None:
        members = len(result.summed)
        detail = f"{result.spec.name}: rehearsed over canaries with {members} members; nothing was spent"
        self._session.report(Progress(Step.DONE, detail=detail, done=members, total=len(result.survivors)))

    def _look_for_work(self) -> Flow[Result | None]:
        """Do what there is to do, then wait for news. Returns a run's result once there is one."""
        yield from self._settle_erased()
        yield from self._enrol_in_open()
        self._leave_over_runs()
        passed, idle = len(self._passed), True
        for cohort, held in list(self._open_cohorts()):
            idle = False
            try:
                result = yield from self._follow_cohort(cohort, held)
            except NotEnrolled as error:
                self._passed.add(cohort.hex())
                self._refuse_run(cohort.hex(), error)
                continue
            except PeerFault as fault:
                if _is_restored(fault):
                    raise
                unknown = fault.cause is Cause.NOT_FOUND and cohort.hex() not in self._feed.runs
                if (
                    unknown
                ):  # the coordinator was restored: `Session.learn_endings` sees to it before the next round
                    self._passed.add(cohort.hex())
                self._refuse_run(cohort.hex(), fault, final=not unknown)
                continue
            if result is not None:
                self._passed.add(cohort.hex())
                return result
        if len(self._passed) == passed:
            if idle:
                self._report_detail(self._describe_idling())
            yield from self._feed.wait_for_news()
        return None

    def _settle_erased(self) -> Flow[None]:
        """Learn how attempts ended whose keys were erased: one that was certified has a result, also for this member."""
        session = self._alone
        session.erase_expired()
        erased = (held for _, held in session.store.stored_phases() if not isinstance(held.phase, Attempting))
        if any(session.is_unsettled(held.round_id) for held in erased):
            with suppress(PeerFault):  # it has not ended, or the coordinator does not show how
                yield from session.learn_endings()

    def _describe_idling(self) -> str:
        """Say what a member without a cohort waits for, and which runs enrol without it."""
        enrolling = [run for run in self._feed.runs.values() if run.state == "enrolling"]
        if passed := [f"{run.name}, period {run.period}" for run in enrolling if run.cohort in self._passed]:
            return f"waiting for another run: this member takes no part in {'; '.join(passed)}"
        return "waiting for a run of an approved study: none is enrolling"

    def _leave_over_runs(self) -> None:
        """Give up the runs that ended without a sum for this member, so that its records may be free (member: Ledger)."""
        runs = self._session.store.ledger.list_runs()
        if not any(each.state is State.RESERVED and not each.given_up for each in runs):
            return
        for cohort, held in list(self._session.store.stored_phases()):
            run = self._feed.runs.get(cohort.hex())
            if run is not None and run.over and run.state == "formed" and run.repeats is None:
                self._session.give_up_over(held.phase, run.period)

    def _open_cohorts(self) -> Iterator[tuple[bytes, StoredPhase]]:
        """Yield cohorts in which there may be something to do."""
        for cohort, held in self._session.store.stored_phases():
            run = self._feed.runs.get(cohort.hex())
            over = run is None or run.over or self._is_given_up(held, run.period)
            unreported = run is not None and run.state == "failed" and run.cohort in self._sent
            if cohort.hex() not in self._passed and (unreported or not (over and self._is_done(held))):
                yield cohort, held

    def _is_given_up(self, held: StoredPhase, period: str) -> bool:
        """Whether to ignore a run because its owner gave it up. Only an agent for one run does; others help to end its attempts."""
        if not self._once:
            return False
        answered = self._session.store.ledger.find_run(question_of(held.phase), period)
        return answered is not None and answered.given_up

    def _is_done(self, held: StoredPhase) -> bool:
        """Whether the member is done with its last round of a finished run: it needs no key, share or result any more."""
        if isinstance(held.phase, Attempting):
            return False
        if isinstance(held.phase, Closed) and not held.phase.certificate.is_void:
            store = self._session.store
            folder = store.result_folder(held.round_id)
            counted = store.ledger.load_history().count_of(held.phase.attempt.context) is not None
            return counted or not Evidence.saved_in(folder) or Result.saved_in(folder)
        return True

    # Enrolling

    def _enrol_meanwhile(self) -> Flow[None]:
        """Look for runs that take cards at intervals, while a round keeps this member waiting."""
        if self._feed.is_due:
            try:
                yield from self._enrol_in_open()
                yield from self._pair_in_all()
            except PeerFault as fault:
                if not _is_restored(fault):  # `next_result` says so once this round is over
                    raise

    def _enrol_in_open(self) -> Flow[None]:
        """Answer every run that takes cards, and send a card after a yes."""
        yield from self._feed.fetch_runs()
        runs = self._feed.runs.values()
        own = {cohort.hex() for cohort, _ in self._session.store.stored_phases()}
        self._followed |= {run.cohort for run in runs if run.cohort in own and not run.over}
        for run in runs:
            kind = kind_of_period(run.period)
            meant = kind is PeriodKind.REHEARSAL or self._period in {None, run.period}
            if (
                run.state != "enrolling"
                or not meant
                or run.cohort in self._passed | self._sent
                or (self._once and self._is_busy(run))
            ):
                continue
            try:
                yield from self._enrol_in(run)
            except (Declined, NotEnrolled, Misuse, CalibrationError) as error:
                # Another study's records may fit, if these don't.
                self._passed.add(run.cohort)
                self._refuse_run(run.cohort, error)
            except PeerFault as fault:
                if _is_restored(fault):
                    raise
                replaced = fault.cause is Cause.WRONG_COHORT and not fault.parties
                # A replaced roster does not come back, and canaries differ as long as this agent has these records.
                if replaced or fault.cause is Cause.CANARIES_DIFFER:
                    self._passed.add(run.cohort)
                # The next cohort is of the new roster. A study that waits for its approval may have it next time.
                self._refuse_run(
                    run.cohort, fault, final=not replaced and fault.cause is not Cause.STUDY_REFUSED
                )

    def _is_busy(self, run: RunView) -> bool:
        """Whether this member is in another run.

        One run may have several cohorts, after a new roster or to repeat a step. A run that only waits for its operator gives way to a
        newer period of its study, or a member would wait for ever for an operator that has left.
        """
        for cohort, held in self._open_cohorts():
            other = self._feed.runs.get(cohort.hex())
            if other is None or other.name != run.name:
                return True
            waits = other.state == "formed" and not isinstance(held.phase, Attempting)
            if other.period != run.period and not (waits and self._is_done(held)):
                return True
        return False

    def _enrol_in(self, run: RunView) -> Flow[None]:
        session = self._alone
        if run.repeats is not None:
            with suppress(PeerFault):  # of another round, which has not ended
                yield from session.learn_endings()  # missing the end does not undo taking part
        invitation = yield from self._fetch_invitation(run)
        _, answer = yield from send_card(session, bytes.fromhex(run.cohort), invitation, self._records)
        self._sent.add(run.cohort)
        if isinstance(answer, CohortView):
            report_enrolment(session, answer)

    def _fetch_invitation(self, run: RunView) -> Flow[Invitation]:
        """Fetch a run's invitation. Raises PeerFault(wrong-cohort) if it is for another period or attempt than the run showed."""
        invitation = yield from self._alone.coordinator.fetch_invitation(run.cohort)
        view = invitation.cohort
        if (view.period, view.repeats) != (run.period, run.repeats):
            raise PeerFault(
                Cause.WRONG_COHORT,
                f"the invitation is to period {view.period}, repeats {view.repeats}; the run showed {run.period}, {run.repeats}",
                ["coordinator"],
            )
        return invitation

    def _pair_in_all(self) -> Flow[None]:
        """Pair in every cohort that waits for it, while a round keeps this member waiting."""
        for cohort, held in list(self._open_cohorts()):
            run = self._feed.runs.get(cohort.hex())
            if (
                run is not None
                and run.state in {"pairing", "formed"}
                and isinstance(held.phase, EnrolmentPhase)
            ):
                try:
                    yield from self._pair_in(self._alone, held.phase, run, wait=False)
                except (NotEnrolled, PeerFault) as error:
                    self._refuse_run(run.cohort, error, final=False)

    def _pair_in(self, session: Session, phase: EnrolmentPhase, run: RunView, *, wait: bool) -> Flow[bool]:
        """Pair in a run's cohort, as far as the others have. Returns whether this member holds the keys of its pairs now.

        Raises:
            NotEnrolled: the cohort goes on without this member, which gives the run up.
            PeerFault: as `pair_in_cohort` does.
        """
        current: MemberPhase = phase
        shown: ShownInCohort | None = None
        while isinstance(current, EnrolmentPhase):
            before, known = current, shown
            try:
                current, shown = yield from pair_in_cohort(session, before, known, wait=wait)
            except PeerFault as fault:
                if (fault.cause, fault.parties) != (Cause.UNKNOWN_MEMBER, (session.member,)):
                    raise  # also cards that name a stranger: they are refused, and the right ones may follow
                session.give_up_over(before, run.period)
                raise NotEnrolled(
                    f"{run.name}, period {run.period}, continues without this member, which did not pair in time: its records are free "
                    "for the next period"
                ) from fault
            if known is not None and current is before and not isinstance(shown, Ciphertexts):
                return False  # the feed tells when there is more to do
        return True

    # Following a run

    def _follow_cohort(self, cohort: bytes, held: StoredPhase) -> Flow[Result | None]:
        """Do what a cohort asks now. Returns the run's result once there is one."""
        session, run = self._session, self._feed.runs.get(cohort.hex())
        if run is not None and isinstance(held.phase, EnrolmentPhase):
            if run.state == "enrolling":
                return None
            if run.state == "failed":  # the operator may open another
                self._passed.add(run.cohort)
                self._refuse_run(
                    run.cohort,
                    fault_in((yield from session.coordinator.fetch_cohort(run.cohort))),
                    final=False,
                )
                return None
            if not (yield from self._pair_in(session, held.phase, run, wait=True)):
                return None
        # A study that has expired is shown only while an attempt is open: what is left then is the round that this member was in.
        round_id, shown = held.round_id if run is None else run.round, None
        if not round_id:
            if run is not None:
                self._report_detail(
                    f"{run.name}, period {run.period}: waiting for the operator to open the first step"
                )
            return None
        if not Result.saved_in(session.store.result_folder(round_id)):
            shown = yield from fetch_request(session, round_id)
        if run is None or run.over or (shown is not None and self._is_asked(round_id, *shown)):
            result = yield from self._take_part(cohort, round_id, shown)
            return result if result is not None and result.last else None
        return None

    def _is_asked(self, round_id: str, cohort: bytes, asked: Asked) -> bool:
        """Whether a round without a saved result still needs this member."""
        if asked.state not in ROUND_ENDINGS:
            return True
        held = self._session.store.load_phase(cohort)
        if held is None or held.round_id != round_id or not isinstance(held.phase, Attempting | Closed):
            return False
        if isinstance(held.phase, Closed) and (
            held.phase.certificate.is_void
            # of a rehearsal that another one has replaced
            or not Evidence.saved_in(self._session.store.result_folder(round_id))
        ):
            return False
        attempt = held.phase.attempt
        counted = self._session.store.ledger.load_history().count_of(attempt.context) is not None
        return (
            not counted or explain_no_sum(self._session, attempt) is not None
        )  # it ends here, without a sum

    def _take_part(
        self, cohort: bytes, round_id: str, shown: tuple[bytes, Asked] | None
    ) -> Flow[Result | None]:
        store = self._session.store
        before = store.load_phase(cohort), store.ledger.list_runs()
        try:
            outcome = yield from run_round(self._session, round_id, shown)
        except NoResult as fault:
            learned = (store.load_phase(cohort), store.ledger.list_runs()) != before
            yield from self._end_without_result(round_id, fault, learned=learned)
            return None
        return outcome if isinstance(outcome, Result) else None

    def _end_without_result(self, round_id: str, fault: NoResult, *, learned: bool) -> Flow[None]:
        """Raise the end of the only run, if this process has `learned` it; otherwise report it and go on.

        The operator opens the next attempt, or repeats a step that was certified. Otherwise the run is over.
        """
        view = yield from self._session.fetch_round(round_id)
        cohort = yield from self._session.coordinator.fetch_cohort(view.cohort)
        end = RunEnd(fault.state)
        over = cohort.step is None or end.ends_run
        if cohort.step is None and cohort.repeats is None:
            held = self._session.store.load_phase(bytes.fromhex(view.cohort))
            if held is not None:
                self._session.give_up_over(held.phase)
        wanted = self._once and self._is_wanted(view.spec.period)
        if wanted and learned and over and not end.repeatable and view.cohort in self._followed | self._sent:
            raise fault
        self._report_detail(str(fault))
        if over:
            self._passed.add(view.cohort)

    def _report_detail(self, detail: str) -> None:
        self._session.report(Progress(Step.WAITING, detail=detail))

    def _refuse_run(self, cohort: str, error: Exception, *, final: bool = True) -> None:
        """Raise an error that ends the only run; otherwise report it, and go on with the others."""
        if self._once and final:
            raise error
        self._report_detail(f"cohort {cohort[:16]}: {error}")
