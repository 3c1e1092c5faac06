"""A run's story: what it needs next, how it may end, and what each end means for members and operators.

The SDK, the service, its pages and the commands take all of this from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import CountOutcome, check_outcomes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link
from veilsum.protocol.messages.opening import LOST_REASON
from veilsum.protocol.opening_rules import CountOutcomes, certified_links, next_step, same_records
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import CohortView, RoundView, join_names, round_name
from veilsum.protocol.study import COUNT_STEP, DISCLOSED_STEPS, ROWS_STEP, SUM_STEP, Question

STAGE_TITLES = {
    "collecting": "uploads",
    "checking": "receipts",
    "freezing": "votes",
    "revealing": "shares",
    "recovered": "sum",
}
"""What a round of each state that is not an end collects or computes."""
NEW_PERIOD = "take a new period, with new records"
NEW_RUN_ADVICE = "Take a new period: the same records may take part in it"
CLOSED_EARLY_ADVICE = (
    "Members accept this end from the round's latest end on, which their messages name (usually an hour after its opening). Until then they "
    "refuse every other round. Keep `veilsum member join` running, then run the study over a new period: `veilsum operator run STUDY --period PERIOD`"
)
"""What follows the admin's close of a round that the coordinator does not know."""
RESTORED_ADVICE = (
    "Members that took part in a round opened since the backup refuse all later rounds as outcome-missing. Their messages name the round, and when the "
    "admin closes it: `veilsum admin close CONTEXT --folder ADMIN`. Then run the study over a new period"
)
"""What an operator does after a restore."""


DECLINED_ADVICE = "A member that declined, as its output says, stays declined for this period: stop this command and take another `--period`"


def explain_forgotten(what: str) -> str:
    """Say what follows if the coordinator no longer knows a round or cohort that it has shown."""
    return f"The coordinator no longer knows {what}, as after a restore from a backup. Looking again. {RESTORED_ADVICE}."


def format_utc(moment_s: float) -> str:
    """Format a Unix time for a message that is read on several machines."""
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def explain_missing_end(context: bytes, detail: str, latest_end_s: int | None) -> str:
    """Say what a member can do if the coordinator does not show how an attempt ended; `latest_end_s` is None if unknown."""
    when = "" if latest_end_s is None else f", {format_utc(latest_end_s)}"
    return (
        f"the coordinator does not show how round {round_name(context)} ended ({detail}). This member is in its cohort, and opens no other "
        "round until it knows. Ask the operator. If the coordinator has lost the round, the admin closes it after its latest end"
        f"{when}: `veilsum admin close {context.hex()} --folder ADMIN`"
    )


def explain_early_close(context: bytes, latest_end_s: int) -> str:
    """Say what follows a Lost that a member is shown before the attempt's latest end."""
    return (
        f"the admin has closed round {round_name(context)}, which takes effect at its latest end, {format_utc(latest_end_s)}. This member opens no "
        "other round before then. Next: keep `veilsum member join` running, or start it after that time"
    )


@dataclass(frozen=True)
class RunAction:
    """What a run needs next.

    Attributes:
        step: the step to open; None if the run is over.
        repeats: context of the certified attempt that the step repeats; None for fresh records.
        last_round: the last round of a run that is over.
    """

    step: str | None
    repeats: str | None = None
    last_round: str | None = None


def read_outcome(view: RoundView) -> CountOutcome | None:
    """Return what a finished count found, by its view; None if it has no sums."""
    sums = view.holders or view.reached
    return CountOutcome(sums, view.survivors, view.evicted, view.sum_survivors_min) if sums else None


def find_other_sums(
    question: Question, period: str, links: Sequence[Link], find_question: Callable[[bytes], Question | None]
) -> list[Link]:
    """Return the certified sums of a period's records under other extractors, which an exact study that differs in nothing else repeats.

    `links` are the federation's chain. `find_question` returns a question by its digest, or None if no published study asks it. A run
    that has begun over fresh records repeats no other's.
    """
    fresh = [link for link in links if (link.period, link.repeats) == (period, NO_CONTEXT)]
    if not _is_repeatable(question, period) or any(link.question == question.digest for link in fresh):
        return []
    sums = [link for link in fresh if (link.step, link.reason) == (SUM_STEP, NO_REASON)]
    asked = {link.question: find_question(link.question) for link in sums}
    return [link for link in sums if (other := asked[link.question]) and same_records(question, other)]


def _is_repeatable(question: Question, period: str) -> bool:
    """Whether a sum of a period may be repeated: an exact one over data."""
    return question.noise is None and kind_of_period(period) is PeriodKind.DATA


def next_action(
    question: Question,
    period: str,
    links: Sequence[Link],
    outcomes: CountOutcomes,
    has_result: Callable[[str], bool],
) -> RunAction:
    """Return the next step of a run, or the certified step without a result to repeat.

    `links` are the federation's chain, and `outcomes` are those of its counts. `has_result` returns whether a round has a result.
    """
    step, run = next_step(question, period, links, outcomes), (question.digest, period)
    spent = [link for link in links if (link.question, link.period) == run and link.spends_records]
    fresh = [link for link in spent if link.repeats == NO_CONTEXT]
    if not fresh:
        return RunAction(step)
    newest = fresh[-1]
    if newest.step in DISCLOSED_STEPS:
        return RunAction(step, last_round=round_name(newest.context) if step is None else None)
    same = [link for link in spent if newest.context in {link.context, link.repeats}]
    certified = [round_name(link.context) for link in same if link.reason == NO_REASON]
    done = next(filter(has_result, certified), None)
    if done is None and certified and _is_repeatable(question, period):
        return RunAction(newest.step, repeats=newest.context.hex())
    if done is None or step is None:
        return RunAction(None, last_round=done or round_name(newest.context))
    return RunAction(step)


def next_repeat(
    question: Question, other: Link, links: Sequence[Link], has_result: Callable[[str], bool]
) -> RunAction:
    """Return the next step of a run that repeats the sum `other` under another extractor, as `next_action` does."""
    own = certified_links(question, other.period, other.step, links)
    rounds = [round_name(link.context) for link in own if link.repeats == other.context]
    if done := next(filter(has_result, rounds), None):
        return RunAction(None, last_round=done)
    return RunAction(other.step, repeats=other.context.hex())


def find_last_link(question: Question, period: str, links: Sequence[Link], repeats: bytes) -> Link | None:
    """Return a run's newest attempt that was certified or closed by the admin; None if it has none."""
    run = question.digest, period, repeats
    own = [link for link in links if (link.question, link.period, link.repeats) == run]
    return next((link for link in reversed(own) if link.spends_records), None)


def run_over(
    question: Question, period: str, links: Sequence[Link], outcomes: CountOutcomes, repeats: bytes
) -> PeerFault:
    """Return why a run without a next step is over: already-summed, or count-mismatch if its counts allow no sum.

    `repeats` is `NO_CONTEXT` for fresh records.
    """
    last = find_last_link(question, period, links, repeats)
    assert last is not None
    if last.step in DISCLOSED_STEPS and last.reason == NO_REASON:
        return explain_counts(question, period, links, outcomes)
    how = "closed by the admin" if last.reason == LOST_REASON else "certified"
    what = f"step {last.step} of period {period} was {how} in round {round_name(last.context)}"
    if last.step in DISCLOSED_STEPS:
        return PeerFault(
            Cause.ALREADY_SUMMED,
            f"{what}, and a count is never repeated. Nothing was spent. {NEW_RUN_ADVICE}",
        )
    if kind_of_period(period) is not PeriodKind.DATA:
        return PeerFault(Cause.ALREADY_SUMMED, f"{what}: take another name of this kind for the next run")
    remedy = NEW_PERIOD
    if last.reason == NO_REASON and question.noise is None:
        remedy += ", or repeat that attempt in a cohort with `repeats`"
    return PeerFault(Cause.ALREADY_SUMMED, f"{what}, so its records are spent: {remedy}")


def find_count_fault(
    question: Question, period: str, links: Sequence[Link], outcomes: CountOutcomes
) -> PeerFault | None:
    """Return why what a run's certified counts found allows no sum (count-mismatch); None if it allows one, or nothing was found."""
    counts = [
        outcomes(link.context)
        for step in (COUNT_STEP, ROWS_STEP)
        for link in certified_links(question, period, step, links)
    ]
    if found := [count for count in counts if count is not None]:
        try:
            check_outcomes(question, found)
        except PeerFault as fault:
            return fault
    return None


def explain_counts(
    question: Question, period: str, links: Sequence[Link], outcomes: CountOutcomes
) -> PeerFault:
    """Return why the certified counts of a run that is over allow no sum (count-mismatch)."""
    return find_count_fault(question, period, links, outcomes) or PeerFault(
        Cause.COUNT_MISMATCH,
        f"a count of period {period} was certified without a result, and is never repeated. Nothing was spent. {NEW_RUN_ADVICE}",
        ["coordinator"],
    )


class EndCost(StrEnum):
    """What an end cost its members, as a sentence."""

    FREE = "Nothing was opened or spent."
    COUNTED = "No records were spent, but the run is one of three that may count them."
    SPENT = "The records of the members in the sum are spent."
    LOST = "The records of members that had uploaded are spent."
    UNDECIDED = ""


_OVERDUE_SUMMARY = "is past its latest end, and waits for decryptors to report that they revealed nothing"
_LATER_ADVICE = "run the same command again later; this member has erased its keys"
_START_ADVICE = "start `veilsum member join` at {waiting}"
_START_OR_ELSE_ADVICE = f"{_START_ADVICE}. If too few come back,"
_UNSOLVED_SUMMARY = "was certified, but has no result"
_SAME_RECORDS_ADVICE = "join the next period, or a study with merged classes: the same records may take part"
_NEXT_PERIOD_ADVICE = "join the next period; `veilsum member ledger` shows whether your records are free"


class RunEnd(StrEnum):
    """How a round ends without a result, or a cohort without a round. The last three are a member's own ends.

    Attributes:
        summary: what happened, after the words "the round".
        cost: whether its records are spent.
        member: what a member does next.
        operator: what an operator does next, by `next_for_operator`.
    """

    summary: str
    cost: EndCost
    member: str
    operator: str

    def __new__(
        cls,
        value: str,
        summary: str = "",
        cost: EndCost = EndCost.UNDECIDED,
        member: str = "",
        operator: str = "",
    ) -> Self:
        """Make an end from its name and what is said of it."""
        end = str.__new__(cls, value)
        end._value_, end.summary, end.cost, end.member, end.operator = value, summary, cost, member, operator
        return end

    VOIDING = (
        "voiding",
        "is ending without a sum, and waits for decryptors to sign that nothing was opened",
        EndCost.UNDECIDED,
        "keep `veilsum member join` running",
        f"{_START_ADVICE}. Where it runs already, its output says why it refuses: `outcome-missing` after a restore. After the latest end fewer are needed",
    )
    VOIDED = (
        "voided",
        "ended without a sum",
        EndCost.FREE,
        "join the next attempt",
        "`veilsum operator run` opens the next attempt",
    )
    ERASING = (
        "erasing",
        _OVERDUE_SUMMARY,
        EndCost.UNDECIDED,
        _LATER_ADVICE,
        f"{_START_OR_ELSE_ADVICE} the admin closes the round, which spends the records uploaded to it: `veilsum admin close {{round}} --folder ADMIN`",
    )
    ERASING_CERTIFIED = (
        "erasing-certified",
        _OVERDUE_SUMMARY,
        EndCost.UNDECIDED,
        _LATER_ADVICE,
        f"{_START_OR_ELSE_ADVICE} cancel the round and repeat it: `veilsum operator round cancel {{round}} --reason …`",
    )
    ERASING_COUNT = (
        "erasing-count",
        _OVERDUE_SUMMARY,
        EndCost.UNDECIDED,
        _LATER_ADVICE,
        f"{_START_OR_ELSE_ADVICE} the admin closes the round; nothing is spent: `veilsum admin close {{round}} --folder ADMIN`",
    )
    ERASED = (
        "erased",
        "ended without a sum after its latest end",
        EndCost.FREE,
        "join the next round",
        "`veilsum operator run` opens the next round",
    )
    FAILED = (
        "failed",
        _UNSOLVED_SUMMARY,
        EndCost.SPENT,
        "keep `veilsum member join` running: an exact step is repeated by all its survivors",
        "`veilsum operator run` sums these records again with exactly these members: {survivors}. If one of them is gone for good, "
        + NEW_PERIOD,
    )
    FAILED_NOISY = (
        "failed-noisy",
        _UNSOLVED_SUMMARY,
        EndCost.SPENT,
        _NEXT_PERIOD_ADVICE,
        f"a noisy step is never repeated: {NEW_PERIOD}",
    )
    FAILED_COUNT = (
        "failed-count",
        "ended without counts that could be checked",
        EndCost.COUNTED,
        _SAME_RECORDS_ADVICE,
        f"a count is never repeated. {NEW_RUN_ADVICE}",
    )
    LOST = (
        "lost",
        "was closed by the admin, because too few decryptors reported",
        EndCost.LOST,
        _NEXT_PERIOD_ADVICE,
        NEW_PERIOD,
    )
    COHORT_FAILED = (
        "cohort-failed",
        "did not form",
        EndCost.FREE,
        "join the next cohort",
        "`veilsum operator run`, or `rehearse`, opens another cohort",
    )
    COUNTED = ("counted", "finished its count, and no sum can follow", EndCost.COUNTED, _SAME_RECORDS_ADVICE)
    LAPSED = (
        "lapsed",
        "is past its latest end, and this member takes no further part in it",
        EndCost.UNDECIDED,
        "join the next round",
    )
    MISSED = "missed", "went on without this member", EndCost.UNDECIDED, "join the next round"

    @classmethod
    def of_round(cls, view: RoundView) -> Self | None:
        """Return the end of a round; None if it has a result, or may still have one."""
        state, noisy = view.state, view.spec.noise is not None
        if view.spec.step in DISCLOSED_STEPS and state in {"failed", "lost", "erasing"}:
            return cls("erasing-count" if state == "erasing" else "failed-count")
        if state == "failed" and noisy:
            return cls("failed-noisy")
        if state == "erasing" and view.survivors and not noisy:
            return cls("erasing-certified")
        return cls(state) if state in {*cls} else None

    @property
    def repeatable(self) -> bool:
        """Whether the certified records can be summed again."""
        return self in {RunEnd.FAILED, RunEnd.ERASING_CERTIFIED}

    @property
    def ends_run(self) -> bool:
        """Whether the run has no further step."""
        counted = self in {RunEnd.COUNTED, RunEnd.FAILED_COUNT}
        return counted or (self.cost in {EndCost.SPENT, EndCost.LOST} and not self.repeatable)

    def explain_end(self, detail: str, following: str) -> str:
        """Say what happened and why, what it cost, and what to do next."""
        return " ".join(filter(None, (f"{self.summary}: {detail}.", self.cost, f"Next: {following}")))

    def next_for_operator(self, view: RoundView) -> str:
        """Say what an operator does next about a round."""
        waiting = join_names(view.waiting_for) if view.waiting_for else "the members that are away"
        return self.operator.format(round=view.round, waiting=waiting, survivors=join_names(view.survivors))

    def explain_to_operator(self, view: RoundView) -> str:
        """Explain a round's end to its operator."""
        detail = (
            f"{len(view.reported)} of {view.reports_min} reports"
            if view.state == "erasing"
            else reason_of(view)
        )
        return self.explain_end(detail, self.next_for_operator(view))


def explain_failed_cohort(view: CohortView, *, another: bool) -> str:
    """Explain a cohort that did not form to its operator. `another` tells whether the command opens one by itself."""
    end, detail = RunEnd.COHORT_FAILED, view.fault.detail if view.fault else "no reason given"
    following = "another cohort opens in a moment" if another else end.operator
    if missing := sorted({*view.members} - {*(view.paired or view.cards)}):
        detail += f"; unreachable, or declined: {join_names(missing)}"
        if kind_of_period(view.period) is not PeriodKind.REHEARSAL:
            following += f". {DECLINED_ADVICE}"
    return f"The cohort {end.explain_end(detail, following)}."


def reason_of(view: RoundView) -> str:
    """Return the cause, detail and parties of a round's fault."""
    if view.fault is None:
        return "no reason given"
    parties = f" [{join_names(view.fault.parties)}]" if view.fault.parties else ""
    return f"{view.fault.cause}: {view.fault.detail}{parties}"
