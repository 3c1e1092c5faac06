"""Run a study from enrolment to its result, for `veilsum operator run`.

    a round of the run is open? ──▶ follow it to its end
            │ no
    next step (`next_action`) ──▶ find or open a cohort for it ──▶ enrolment ──▶ open the step when enough members are present
            └──▶ none: show the result, or why it is missing

It keeps no state: when restarted, it finds the run at the coordinator and continues.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from client_sdk.errors import Unreachable
from client_sdk.operator import Operator
from veilsum.cli.remote import watch_changes
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Link
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import CohortView, RoundView, StudyView, join_names, round_name
from veilsum.protocol.study import DISCLOSED_STEPS, Question, read_content
from veilsum.study.progress import (
    RunAction,
    RunEnd,
    explain_counts,
    explain_failed_cohort,
    explain_forgotten,
    find_other_sums,
    next_action,
    next_repeat,
    read_outcome,
)
from veilsum.system.intervals import (
    POLL_MIN_S,
    REHEARSAL_POLL_S,
    RUN_RETRY_LONGEST_S,
    RUN_RETRY_S,
    compute_presence_s,
)

ATTEMPTS_MAX = 8
"""Consecutive enrolments and rounds without a result before a run gives up."""
_REFUSED_FOR_NOW = frozenset(
    {
        Cause.CONFLICT,
        Cause.OUTCOME_MISSING,
        Cause.TERMS_REFUSED,
        Cause.UNAVAILABLE,
        Cause.WRONG_PHASE,
        Cause.WRONG_SEQUENCE,
    }
)
"""Temporary refusals: members are away, or another round is open."""

_FORMS_OF_PERIODS = {
    PeriodKind.DATA: ("run", "a name such as 2026-11"),
    PeriodKind.REHEARSAL: ("rehearse", "rehearsal-NAME"),
    PeriodKind.JUDGE: ("judge", "judge-NAME"),
}
"""The operator's command for each kind of period, and how its periods are named."""

T = TypeVar("T")


class Waiting(Protocol):
    """Calls a function that waits, and may end the wait early."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return the result of `work`."""


def wait_forever(work: Callable[[], T], /) -> T:
    """Wait without a limit."""
    return work()


Told = Callable[[CohortView | RoundView | str], None]


@dataclass
class Following:
    """Follows a run.

    Attributes:
        client: a client with an operator's token.
        tell: called with each change of a cohort or round, and with messages for people.
        wait: calls its argument; the demo ends the wait early if a process fails.
        pause: sleeps for a number of seconds.
        attempts_max: consecutive enrolments and rounds without a result before the run is given up.
        ends_enrolment: asked at each poll of an enrolment whether to close it; None to wait until all have come or its window ends.
        shown: the heads that a judgement shows (`encode_shown`); None for other runs.
    """

    client: Operator
    tell: Told
    wait: Waiting = wait_forever
    pause: Callable[[float], None] = time.sleep
    attempts_max: int = field(default_factory=lambda: ATTEMPTS_MAX)
    ends_enrolment: Callable[[CohortView], bool] | None = None
    shown: bytes | None = None
    _outdated: set[str] = field(default_factory=set)
    """Cohorts in which no further round can be opened."""
    _failures: list[str] = field(default_factory=list)
    """Descriptions of failures since the last step with a result."""

    def run_study(self, federation: str, study: StudyView, period: str) -> RoundView:
        """Enrol, open each step in turn, and follow it; return the last round. Attempts without a result are retried or repeated.

        If the period's records were summed under another extractor, by a study that differs in nothing else, that sum is repeated.

        Raises:
            Misuse: `attempts_max` attempts in a row ended without a result; or several sums of the period could be repeated.
            PeerFault: count-mismatch if the run's counts allow no sum; or the coordinator refuses permanently.
            Unreachable: the coordinator can't be reached.
        """
        question = self._fetch_question(federation, study.study)
        other = self._find_other_sum(federation, question, period)
        while True:
            if (live := self._find_live(federation, study, period)) is not None:
                self._follow_round(live)
            links = self.client.chain(federation).links
            if other is None:
                found = next_action(question, period, links, self._read_outcome, self._is_done)
            else:
                found = next_repeat(question, other, links, self._is_done)
            if found.step is None:
                assert found.last_round is not None
                last = self.client.round(found.last_round)
                if last.spec.step in DISCLOSED_STEPS and last.state != "lost":
                    raise explain_counts(question, period, links, self._read_outcome)
                return last
            if len(self._failures) >= self.attempts_max:
                if self.attempts_max == 1:
                    raise Misuse(self._failures[-1])
                raise Misuse(
                    f"step {found.step} of period {period} had no result {self.attempts_max} times in a row. The last failure: "
                    f"{self._failures[-1]} Run the command again once its cause is fixed"
                )
            try:
                cohort = self._cohort_for(federation, study, period, found)
                if self._follow_enrolment(cohort):
                    presence_s = compute_presence_s(question.windows.answer)
                    self._open_step(cohort, found.step, presence_s)
            except Unreachable as lost:  # the request may have succeeded; the next iteration finds out
                self.tell(f"{lost}. Looking again.")
                self.pause(RUN_RETRY_S)

    def _fetch_question(self, federation: str, study: str) -> Question:
        return read_content(self.client.study(federation, study).content).question

    def _find_other_sum(self, federation: str, question: Question, period: str) -> Link | None:
        """Return the sum of the period's records under another extractor, which the run repeats; None for fresh records."""
        hashes = {bytes.fromhex(view.question): view.study for view in self.client.studies(federation)}

        def find_question(digest: bytes) -> Question | None:
            return self._fetch_question(federation, hashes[digest]) if digest in hashes else None

        links = self.client.chain(federation).links
        found = find_other_sums(question, period, links, find_question)
        rounds = [round_name(link.context) for link in found]
        if len(found) > 1:
            raise Misuse(
                f"period {period} has {len(found)} sums under other extractors, in rounds {join_names(rounds)}: choose the one to repeat by "
                "`veilsum operator cohort open STUDY --repeats CONTEXT`, with the context that `veilsum operator round status ROUND --json` shows"
            )
        if not found:
            return None
        self.tell(
            f"The records of period {period} were summed under another extractor in round {rounds[0]}. They are summed again, by exactly its members."
        )
        return found[0]

    def _find_live(self, federation: str, study: StudyView, period: str) -> RoundView | None:
        """Return the run's open round; a federation has at most one."""
        rounds = self.client.federation(federation).rounds
        view = self.client.round(rounds[-1]) if rounds else None
        if view is None or view.ended or (view.spec.name, view.spec.period) != (study.name, period):
            return None
        return view

    def _is_done(self, round_id: str) -> bool:
        return self.client.round(round_id).state == "done"

    def _read_outcome(self, context: bytes) -> CountOutcome | None:
        return read_outcome(self.client.round(round_name(context)))

    def _follow_round(self, live: RoundView) -> None:
        """Follow a round to its end, and report the next step if it has no result."""
        views = watch_changes(lambda after: self.wait(partial(self.client.round, live.round, after)))
        try:
            while not (view := next(views)).ended:
                self.tell(view)
        except PeerFault as fault:
            self._note_forgotten(fault, f"round {live.round}")
            return
        self.tell(view)
        if (end := RunEnd.of_round(view)) is None:
            self._failures.clear()
        elif not end.ends_run:
            self._note_failure(f"Step {view.spec.step} {end.explain_to_operator(view)}.")

    def _note_forgotten(self, fault: PeerFault, what: str) -> None:
        """Report a round or cohort that the coordinator has forgotten. Raises any other fault."""
        if fault.cause is not Cause.NOT_FOUND:
            raise fault
        self._note_failure(explain_forgotten(what))

    def _note_failure(self, reason: str) -> None:
        """Report a failure, and back off."""
        self._failures.append(reason)
        self.tell(reason)
        if len(self._failures) >= self.attempts_max:
            return
        self.pause(min(RUN_RETRY_LONGEST_S, RUN_RETRY_S * 2 ** (len(self._failures) - 1)))

    def _cohort_for(self, federation: str, study: StudyView, period: str, found: RunAction) -> CohortView:
        """Return the newest cohort in which the step can be opened, or open a cohort."""
        wanted = study.study, period, found.repeats
        for run in reversed(self.client.runs(federation).runs):
            usable = not run.over and run.cohort not in self._outdated
            if usable and (run.study, run.period, run.repeats) == wanted:
                return self.client.cohort(run.cohort)
        return self.client.open_cohort(federation, study.study, period, found.repeats)

    def _follow_enrolment(self, cohort: CohortView) -> bool:
        """Follow enrolment to its end. Returns whether the cohort formed."""
        if cohort.state == "formed":
            return True
        views = watch_changes(
            lambda after: self.wait(partial(self._fetch_enrolment, cohort.cohort, after)),
            POLL_MIN_S if self.ends_enrolment is None else REHEARSAL_POLL_S,
        )
        try:
            while (view := next(views)).forming:
                self.tell(view)
        except PeerFault as fault:
            self._note_forgotten(fault, f"cohort {cohort.cohort}")
            return False
        self.tell(view)
        if view.state == "failed":
            another = len(self._failures) + 1 < self.attempts_max
            self._note_failure(explain_failed_cohort(view, another=another))
        return view.state == "formed"

    def _fetch_enrolment(self, cohort: str, after: int | None) -> CohortView:
        """Fetch a cohort, and close its enrolment if it is time to. What decides that changes no cohort: then no poll is held."""
        if self.ends_enrolment is None:
            return self.client.cohort(cohort, after)
        view = self.client.cohort(cohort)
        if view.state == "enrolling" and self.ends_enrolment(view):
            return self.client.close_cohort(cohort)
        return view

    def _open_step(self, cohort: CohortView, step: str, presence_s: float) -> None:
        """Open the step if enough members were heard from within `presence_s`, or report why it can't be opened now."""
        try:
            heads = None if self.shown is None else self.client.store_heads(cohort.cohort, self.shown)
            self.wait(partial(self.client.open_round, cohort.cohort, heard_within_s=presence_s, heads=heads))
        except PeerFault as fault:
            named = {*fault.parties} - {"coordinator"}
            if fault.cause is Cause.ROSTER_ROLLBACK:
                self._outdated.add(cohort.cohort)
                self.tell("The roster was replaced after enrolment: members enrol again.")
            elif fault.cause is Cause.COUNT_MISMATCH and named:
                self._outdated.add(cohort.cohort)
                self._note_failure(
                    f"Step {step} can't be opened in this cohort: {fault.detail}. Members enrol again."
                )
            elif fault.cause in _REFUSED_FOR_NOW:
                self.tell(f"Step {step} can't be opened yet: {fault.detail}.")
                self.pause(RUN_RETRY_S)
            else:
                self._note_forgotten(fault, f"cohort {cohort.cohort}")


def find_study(client: Operator, federation: str, wanted: str) -> StudyView:
    """Find a published study by its name, its hash, or at least 8 digits of the hash. A name finds its highest version.

    Raises:
        Misuse: there is no such study, or it is revoked.
    """
    found = client.studies(federation)
    named = [each for each in found if each.name == wanted]
    named = [each for each in named if not each.revoked] or named
    if not named:
        named = [each for each in found if len(wanted) >= 8 and each.study.startswith(wanted.lower())]
    if not named:
        known = ", ".join(sorted({each.name for each in found if not each.revoked})) or "none"
        raise Misuse(f"no study {wanted!r} is published; published: {known}")
    newest = max(named, key=lambda each: each.version)
    if newest.revoked:
        raise Misuse(
            f"study {newest.name}, version {newest.version} is revoked, or an earlier study key signed it: publish a later version"
        )
    return newest


def check_period(period: str, wanted: PeriodKind) -> str:
    """Return a command's period. Raises Misuse for one of another kind, in which members would sum other records than the command is for."""
    if (kind := kind_of_period(period)) is not wanted:
        raise Misuse(
            f"--period {period} is for `veilsum operator {_FORMS_OF_PERIODS[kind][0]}`: expected {_FORMS_OF_PERIODS[wanted][1]}"
        )
    return period


def this_month() -> str:
    """Return the default period, for example 2026-11."""
    return datetime.now(UTC).strftime("%Y-%m")
