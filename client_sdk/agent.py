"""A member that takes part by itself: it waits for runs of approved studies, and follows each to its verified result.

    next ──▶ enrol where a run takes cards ──▶ each cohort: its manifest, then its open round ──▶ result? ──▶ wait for news
                       ▲                                         │                                        │
                       └── also whenever a round lets it wait ───┘◀───────────────────────────────────────┘

An agent retries a coordinator that is out of reach, or shows no runs, without limit; only with `once` it gives up. Everything that it needs
after a crash is in the store: a new agent on the same folder continues.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from client_sdk.api import Asked, Invitation
from client_sdk.contribution import meet, take_part, too_few_rows
from client_sdk.effects import Flow, Pause
from client_sdk.enrolment import failure, form, send_card, tell_waiting
from client_sdk.errors import (
    Declined,
    Misuse,
    NoResult,
    NotEnrolled,
    PeerFault,
    UnexpectedAnswer,
    Unreachable,
)
from client_sdk.evidence import Evidence
from client_sdk.progress import Progress, Step
from client_sdk.records import Records
from client_sdk.result import Result
from client_sdk.session import POLL_MIN_S, Session, ready_of
from client_sdk.store import StoredPhase
from veilsum.calibration.errors import CalibrationError
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, Enrolled
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.rest import CohortView, RoundView, RunsView, RunView
from veilsum.protocol.study import read_content

LOOK_S = 30.0
"""Interval of looking for runs that take cards, while a round keeps the member waiting."""
NEWS_AT_ONCE = 8
"""How many changes of the runs are followed at once; then one a second, because a coordinator may show changes endlessly."""


class Agent:
    """Steps through the runs of a federation.

    Args:
        session: the member.
        records: all of its records.
        once: stop after one run.
        period: take part in runs of this period only; None for any.
    """

    def __init__(self, session: Session, records: Records, *, once: bool, period: str | None) -> None:
        self._session = replace(session, meanwhile=self._look_up)
        self._alone, self._records, self._once, self._period = session, records, once, period
        self._passed = set[str]()
        """Cohorts that need nothing more of this member, or that it takes no part in."""
        self._sent = set[str]()
        """Cohorts that this process has sent a card to."""
        self._followed = set[str]()
        """Cohorts with a run that was not over when this agent saw it."""
        self._ended = False
        self._runs: dict[str, RunView] = {}
        self._revision: int | None = None
        self._news: RunsView | None = None
        """What the last wait ended with."""
        self._looked_s = -LOOK_S
        self._paced_s = 0.0
        """When the next change may be followed, as if each took a second."""

    def next(self) -> Flow[Result | None]:
        """Continue until a run has its result, and return it; None at the end.

        Raises:
            Declined, PeerFault, Misuse, CalibrationError, Unreachable: the error of the run, only with `once`.
            ClientError: the state is damaged.
        """
        while not self._ended:
            try:
                result = yield from self._look()
            except (Unreachable, UnexpectedAnswer, PeerFault) as error:
                if self._once:
                    raise
                why = "is out of reach; check the address and the network"
                if isinstance(error, PeerFault):
                    why = f"shows no runs ({error})"
                self._session.report(Progress(Step.WAITING, detail=f"the coordinator {why}. Still trying"))
                yield Pause(LOOK_S)
                continue
            if result is not None:
                self._ended = self._once
                return result
        return None

    def _look(self) -> Flow[Result | None]:
        """Do what there is to do, then wait for news. Returns a run's result once there is one."""
        shown, self._news = self._news, None
        yield from self._enrol_where_possible(shown or (yield from self._shown()))
        passed, idle = len(self._passed), True
        for cohort, held in list(self._mine()):
            idle = False
            try:
                result = yield from self._follow(cohort, held)
            except (PeerFault, NotEnrolled) as fault:
                self._refuse(cohort.hex(), fault)
                continue
            if result is not None:
                self._passed.add(cohort.hex())
                return result
        if len(self._passed) == passed:
            yield from self._wait(idle=idle)
        return None

    def _mine(self) -> Iterator[tuple[bytes, StoredPhase]]:
        """Yield cohorts in which there may be something to do."""
        for cohort, held in self._session.store.cohorts():
            run = self._runs.get(cohort.hex())
            over = run is None or run.over or self._given_up(held, run.period)
            untold = run is not None and run.state == "failed" and run.cohort in self._sent
            if cohort.hex() not in self._passed and (untold or not (over and self._nothing_left(held))):
                yield cohort, held

    def _given_up(self, held: StoredPhase, period: str) -> bool:
        """Whether to ignore a run because its owner gave it up. Only an agent for one run does; others help to end its attempts."""
        if not self._once:
            return False
        study = held.phase.study if isinstance(held.phase, Enrolled) else ready_of(held.phase).study
        answered = self._session.store.ledger.run(read_content(study.content).question.digest, period)
        return answered is not None and answered.given_up

    def _busy_beside(self, run: RunView) -> bool:
        """Whether this member is in another run. One run may have several cohorts, after a new roster or to repeat a step."""
        mine = (self._runs.get(cohort.hex()) for cohort, _ in self._mine())
        return any(each is None or (each.name, each.period) != (run.name, run.period) for each in mine)

    def _nothing_left(self, held: StoredPhase) -> bool:
        """Whether the member is done with its last round of a finished run: it needs no key, share or result any more."""
        if isinstance(held.phase, Attempting):
            return False
        if isinstance(held.phase, Closed) and not held.phase.certificate.void:
            store = self._session.store
            folder = store.results(held.round_id)
            counted = store.ledger.history().count_of(held.phase.attempt.context) is not None
            return counted or not Evidence.saved_in(folder) or Result.saved_in(folder)
        return True

    # Enrolling

    def _look_up(self) -> Flow[None]:
        """Look for runs that take cards at intervals, while a round keeps this member waiting."""
        if self._session.environment.monotonic_s() - self._looked_s >= LOOK_S:
            yield from self._enrol_where_possible((yield from self._shown()))

    def _shown(self) -> Flow[RunsView]:
        return (yield from self._alone.coordinator.runs(self._alone.policy.federation.hex()))

    def _enrol_where_possible(self, shown: RunsView) -> Flow[None]:
        """Answer every run that takes cards, and send a card after a yes."""
        session = self._alone
        self._looked_s = session.environment.monotonic_s()
        self._revision, self._runs = shown.revision, {run.cohort: run for run in shown.runs}
        self._followed |= {run.cohort for run in shown.runs if not run.over}
        for run in shown.runs:
            wanted = run.state == "enrolling" and self._period in {None, run.period}
            if not wanted or run.cohort in self._passed | self._sent:
                continue
            if self._once and self._busy_beside(run):
                continue
            try:
                if run.repeats is not None:
                    with suppress(PeerFault):  # of another round, which has not ended
                        yield from session.settle()  # missing the end does not undo taking part
                invitation = yield from self._invitation(run)
                _, answer = yield from send_card(
                    session, bytes.fromhex(run.cohort), invitation, self._records
                )
                self._sent.add(run.cohort)
                if isinstance(answer, CohortView):
                    tell_waiting(session, answer)
            except (Declined, NotEnrolled, Misuse, CalibrationError) as error:
                # Another study's records may fit, if these don't.
                self._passed.add(run.cohort)
                self._refuse(run.cohort, error)
            except PeerFault as fault:
                # A study that waits for its approval may have it next time.
                self._refuse(run.cohort, fault, final=fault.cause is not Cause.STUDY_REFUSED)

    def _invitation(self, run: RunView) -> Flow[Invitation]:
        """Fetch a run's invitation. Raises PeerFault(wrong-cohort) if it is for another period or attempt than the run showed."""
        invitation = yield from self._alone.coordinator.invitation(run.cohort)
        view = invitation.cohort
        if (view.period, view.repeats) != (run.period, run.repeats):
            raise PeerFault(
                Cause.WRONG_COHORT,
                f"the invitation is to period {view.period}, repeats {view.repeats}; the run showed {run.period}, {run.repeats}",
                ["coordinator"],
            )
        return invitation

    # Following a run

    def _follow(self, cohort: bytes, held: StoredPhase) -> Flow[Result | None]:
        """Do what a cohort asks now. Returns the run's result once there is one."""
        session, run = self._session, self._runs.get(cohort.hex())
        if run is not None and isinstance(held.phase, Enrolled):
            if run.state == "enrolling":
                return None
            if run.state == "failed":  # the operator may open another
                self._passed.add(run.cohort)
                self._refuse(run.cohort, (yield from failure(session, cohort)), final=False)
                return None
            yield from form(session, held.phase, run.state)
        # A study that has expired is shown only while an attempt is open: what is left then is the round that this member was in.
        round_id, shown = held.round_id if run is None else run.round, None
        if not round_id:
            return None
        if not Result.saved_in(session.store.results(round_id)):
            shown = yield from meet(session, round_id)
        if run is not None and not run.over and (shown is None or not self._asks(shown)):
            return None
        result = yield from self._part(round_id, shown)
        return None if result is None or not result.last else result

    def _asks(self, view: RoundView | Asked) -> bool:
        """Whether a round without a saved result still needs this member."""
        if isinstance(view, Asked) or not view.ended:
            return True
        held = self._session.store.held(bytes.fromhex(view.cohort))
        if held is None or held.round_id != view.round or not isinstance(held.phase, Attempting | Closed):
            return False
        if isinstance(held.phase, Closed) and held.phase.certificate.void:
            return False
        attempt = held.phase.attempt
        counted = self._session.store.ledger.history().count_of(attempt.context) is not None
        return not counted or too_few_rows(self._session, attempt) is not None  # it ends here, without a sum

    def _part(self, round_id: str, shown: RoundView | Asked | None) -> Flow[Result | None]:
        try:
            result = yield from take_part(self._session, round_id, shown)
        except NoResult as fault:
            # The operator opens the next attempt, or repeats a step that was certified. Otherwise the run is over.
            view = yield from self._session.round(round_id)
            cohort = yield from self._session.coordinator.cohort(view.cohort)
            over = cohort.step is None or fault.state == "counted"
            repeatable = fault.state == "failed" and view.spec.noise is None
            if self._once and over and not repeatable and view.cohort in self._followed:
                raise
            self._session.report(Progress(Step.WAITING, detail=str(fault)))
            if over:
                self._passed.add(view.cohort)
            return None
        if isinstance(result, Result):
            return result
        run = self._runs.get(result.hex())
        if run is not None and run.repeats is not None:
            # An indicator was repeated: the sum follows in a cohort over fresh records, unless it was certified before.
            self._passed.add(result.hex())
            fresh = (run.name, run.period, None)
            self._ended = self._once and not any(
                (each.name, each.period, each.repeats) == fresh and not each.over
                for each in self._runs.values()
            )
        return None

    def _wait(self, *, idle: bool) -> Flow[None]:
        """Wait until a cohort or round of the federation begins or ends, or a long poll ends."""
        session, asked_s = self._alone, self._alone.environment.monotonic_s()
        if idle:
            session.report(Progress(Step.WAITING, detail="no run of an approved study is enrolling"))
        runs = yield from session.coordinator.runs(session.policy.federation.hex(), self._revision)
        self._paced_s = max(self._paced_s, asked_s - NEWS_AT_ONCE * POLL_MIN_S) + POLL_MIN_S
        yield from session.waited(asked_s, news=runs.revision != self._revision and self._paced_s <= asked_s)
        self._news = runs

    def _refuse(self, cohort: str, error: Exception, *, final: bool = True) -> None:
        """Raise an error that ends the only run; otherwise report it, and go on with the others."""
        if self._once and final:
            raise error
        self._session.report(Progress(Step.WAITING, detail=f"cohort {cohort[:16]}: {error}"))
