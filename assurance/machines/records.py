"""An honest member's ledger in memory, after docs/protocol/member.md: which uploads it allows, and for which records."""

from dataclasses import dataclass, field, replace

from assurance.machines.cast import Mutable
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link
from veilsum.protocol.study import SUM_STEP, Question

Run = tuple[bytes, str]
"""A question's digest and a period."""
SPENDING = frozenset({NO_REASON, "lost"})


@dataclass(frozen=True)
class Reservation:
    """The reserved records of a run.

    Attributes:
        records: their numbers; empty if the answer was no.
        noisy: whether its sums carry noise.
        spent: whether they are spent for ever.
        given_up: whether the run opens no more attempts.
        summed: context of the first sum that was certified or lost.
        ended: attempts of the run, each with the reason of its end, or an empty one.
    """

    records: frozenset[int]
    noisy: bool
    spent: bool = False
    given_up: bool = False
    summed: bytes = NO_CONTEXT
    ended: dict[bytes, str] = field(default_factory=dict)


class Records(Mutable):
    """A member's reservations of its two records."""

    def __init__(self) -> None:
        self.runs: dict[Run, Reservation] = {}
        self.run_of: dict[bytes, Run] = {}
        self.kind: dict[int, bool] = {}
        self.extractors: dict[bytes, str] = {}

    def answer(self, question: Question, period: str) -> bool:
        """Return whether the member takes part over fresh records. Its first answer stands (SELECT-6)."""
        run = (question.digest, period)
        self.extractors[question.digest] = question.extractor
        if run not in self.runs:
            noisy = question.noise is not None
            free = [record for record in (0, 1) if self._free(record, noisy=noisy)][:1]
            self.runs[run] = Reservation(frozenset(free), noisy)
        found = self.runs[run]
        return bool(found.records) and not found.given_up

    def _free(self, record: int, *, noisy: bool) -> bool:
        holding = [each for each in self.runs.values() if record in each.records]
        return all(each.noisy and noisy for each in holding) and self.kind.get(record, noisy) == noisy

    def again(self, context: bytes, question: Question, period: str) -> bool:
        """Return whether it repeats an attempt: it holds the reservation, and this is the extractor's one question (member: Ledger)."""
        held = self.runs.get(self.run_of.get(context, (b"", "")))
        # The opening to come may be the first message with the attempt's end.
        if held is None or held.summed not in {NO_CONTEXT, context} or held.given_up:
            return False
        digests = {digest for (digest, _), each in self.runs.items() if each is held}
        if question.extractor in {self.extractors[each] for each in digests - {question.digest}}:
            return False
        self.extractors[question.digest] = question.extractor
        return self.runs.setdefault((question.digest, period), held) is held

    def may_open(self, attempt: Attempt) -> bool:
        """Return whether the reservation allows this attempt, and record the attempt if so (member: Ledger)."""
        run = (attempt.question.digest, attempt.manifest.period)
        held = self.runs.get(run)
        if held is None or not held.records or held.given_up:
            return False
        exact_sum = attempt.terms.step == SUM_STEP and not held.noisy
        if held.summed != NO_CONTEXT and exact_sum and attempt.manifest.repeats != held.summed:
            return False
        self.run_of[attempt.context] = run
        self._change(run, ended={attempt.context: "", **held.ended})
        return True

    def ended(self, link: Link) -> None:
        """Record how an attempt ended; the first end stays."""
        run = self.run_of.get(link.context)
        if run is None or self.runs[run].ended[link.context]:
            return
        held = self.runs[run]
        stands = link.reason in SPENDING
        spends = stands and (held.noisy or link.step == SUM_STEP)
        first = spends and link.step == SUM_STEP and held.summed == NO_CONTEXT
        if stands:  # a count makes records exact, too
            self.kind.update(dict.fromkeys(held.records, held.noisy))
        self._change(
            run,
            ended={**held.ended, link.context: link.reason},
            spent=held.spent or spends,
            summed=link.context if first else held.summed,
        )
        self._let_go(run)

    def give_up(self, run: Run) -> None:
        """Open no more attempts of a run."""
        self._change(run, given_up=True)
        self._let_go(run)

    def _let_go(self, run: Run) -> None:
        held = self.runs[run]
        if held.given_up and not held.spent and all(held.ended.values()):
            self._change(run, records=frozenset())

    def _change(self, run: Run, **changes: object) -> None:
        held = self.runs[run]
        changed = replace(held, **changes)  # type: ignore[arg-type]  # fields of it
        # A repeated run under another extractor shares the reservation of the first.
        self.runs.update({each: changed for each, other in self.runs.items() if other is held})
