"""A run of a study, from enrolment to its result: what `veilsum operator run` does.

It keeps no state of its own. Whoever starts it again finds the run at the coordinator and goes on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from client_sdk.operator import Operator
from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.rest import CohortView, RoundView, RunView, StudyView
from veilsum.remote import changes

ATTEMPTS = 8
"""Attempts at a step before a run gives up."""
PAUSE_S = 5.0
"""Before a round that the coordinator would not open is tried again, and after a VOID attempt."""
_REFUSED_FOR_NOW = frozenset(
    {
        Cause.COHORT_TOO_SMALL,
        Cause.CONFLICT,
        Cause.OUTCOME_MISSING,
        Cause.TERMS_REFUSED,
        Cause.UNAVAILABLE,
        Cause.WRONG_PHASE,
        Cause.WRONG_SEQUENCE,
    }
)
"""Why a round can't be opened yet: members are away, or another round is open."""

T = TypeVar("T")


class Waiting(Protocol):
    """Calls something that waits, and may end it early."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """The call's value."""


def at_ease(work: Callable[[], T], /) -> T:
    """Wait as long as it takes."""
    return work()


Told = Callable[[CohortView | RoundView | str], None]


@dataclass
class Following:
    """How a run is followed.

    Attributes:
        client: with an operator's token.
        tell: called with each change of a cohort or round, and with sentences.
        wait: calls what it is given; the demo ends it early if a process fails.
        pause: sleeps so many seconds.
        lifetime_s: of each round; None for the coordinator's choice.
    """

    client: Operator
    tell: Told
    wait: Waiting = at_ease
    pause: Callable[[float], None] = time.sleep
    lifetime_s: float | None = None

    def run(self, federation: str, study: StudyView, period: str) -> RoundView:
        """Enrol, open each step in turn, and follow it to the result.

        Returns:
            The last round: done, or how it ended.

        Raises:
            Misuse: enrolment failed, or a step ended without a sum too often.
            PeerFault: what the coordinator refuses for good.
        """
        cohort = self.formed(self._cohort(federation, study, period))
        last, attempts = None, 0
        while True:
            newest = self.client.round(cohort.rounds[-1]) if cohort.rounds else None
            if newest is not None and (last is None or newest.round != last.round):
                last = self.ended(newest)
                attempts = attempts + 1 if last.state in {"voided", "erased"} else 0
            cohort = self.client.cohort(cohort.cohort)
            if cohort.step is None or (last is not None and last.state in {"failed", "lost"}):
                if last is None:
                    raise Misuse(f"{study.name}, period {period} is over: its records were summed before")
                return last
            if attempts >= ATTEMPTS:
                raise Misuse(
                    f"{attempts} attempts at step {cohort.step} ended without a sum: see `veilsum operator round status {last and last.round}`"
                )
            if attempts:
                self.tell(f"Nothing was opened. Trying step {cohort.step} again in {PAUSE_S:g} s.")
                self.pause(PAUSE_S)
            self._open(cohort)
            cohort = self.client.cohort(cohort.cohort)

    def formed(self, view: CohortView) -> CohortView:
        """Follow enrolment to its end. Raises Misuse if it failed."""
        views = changes(lambda after: self.wait(partial(self.client.cohort, view.cohort, after)))
        while (view := next(views)).state == "enrolling":
            self.tell(view)
        self.tell(view)
        if view.state == "failed":
            why = view.fault.detail if view.fault else "no reason given"
            raise Misuse(f"enrolment failed: {why}. Run the command again to open another cohort")
        return view

    def ended(self, view: RoundView) -> RoundView:
        """Follow a round to its end. After its latest end that takes reports of its decryptors, or the admin."""
        views = changes(lambda after: self.wait(partial(self.client.round, view.round, after)))
        warned = False
        while not (view := next(views)).ended:
            self.tell(view)
            if view.state == "erasing" and not warned:
                warned = True
                self.tell(
                    "The round's latest end has passed. It waits for its decryptors to run `veilsum member join` again, or for "
                    f"`veilsum admin close {view.round}`."
                )
        self.tell(view)
        return view

    def _cohort(self, federation: str, study: StudyView, period: str) -> CohortView:
        """The run's cohort: one that stands, or a new one."""
        runs = [each for each in self.client.runs(federation).runs if _of(each, study, period)]
        if runs:
            view = self.client.cohort(runs[-1].cohort)
            self.tell(f"Going on with the run of {study.name}, period {period}.")
            return view
        return self.client.open_cohort(federation, study.study, period)

    def _open(self, cohort: CohortView) -> None:
        """Open the next step, once enough members are there."""
        told = ""
        while True:
            try:
                self.wait(partial(self.client.open_round, cohort.cohort, lifetime_s=self.lifetime_s))
            except PeerFault as fault:
                if fault.cause not in _REFUSED_FOR_NOW:
                    raise
                if fault.detail != told:
                    self.tell(f"Step {cohort.step} can't be opened yet: {fault.detail}")
                    told = fault.detail
                self.pause(PAUSE_S)
            else:
                return


def find_study(client: Operator, federation: str, wanted: str) -> StudyView:
    """Find a published study by its name, or by its hash or the first digits of it.

    Of several versions of a name the highest is taken.

    Raises:
        Misuse: there is none, or it is revoked.
    """
    found = client.studies(federation)
    named = [each for each in found if each.name == wanted and not each.revoked]
    if not named:
        named = [each for each in found if len(wanted) >= 8 and each.study.startswith(wanted.lower())]
    if not named:
        known = ", ".join(sorted({each.name for each in found if not each.revoked})) or "none"
        raise Misuse(f"no study {wanted!r} is published; published: {known}")
    newest = max(named, key=lambda each: each.version)
    if newest.revoked:
        raise Misuse(f"the roster revokes study {newest.name}, version {newest.version}")
    return newest


def this_month() -> str:
    """The default period, for example 2026-11."""
    return datetime.now(UTC).strftime("%Y-%m")


def _of(run: RunView, study: StudyView, period: str) -> bool:
    return run.study == study.study and run.period == period and run.repeats is None and run.state != "failed"
