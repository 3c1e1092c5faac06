"""What an honest coordinator remembers of ended attempts, and how it makes the next one's terms from that."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Certified, Ended, Recovered, Voided
from veilsum.protocol.counting import withheld_classes
from veilsum.protocol.member.history import Counted
from veilsum.protocol.messages import NO_CONTEXT, Link, Survivor, SurvivorSet, Terms
from veilsum.protocol.messages.opening import LOST_REASON, MAX_ATTEMPTS
from veilsum.protocol.opening_rules import earlier_contexts, link_of
from veilsum.protocol.study import DAY_S, ROWS_STEP, SUM_STEP, Question


class Chain:
    """An honest coordinator's memory of ended attempts, from which it opens the next.

    Attributes:
        links: of all attempts.
        sets: certified survivors by context.
        summed: terms of certified attempts by context.
        counted: results of counts, by context.
    """

    def __init__(self) -> None:
        self.links: tuple[Link, ...] = ()
        self.sets: dict[bytes, tuple[Survivor, ...]] = {}
        self.summed: dict[bytes, Terms] = {}
        self.counted: dict[bytes, Counted] = {}

    def ended(self, phase: Ended, total: npt.NDArray[np.int64] | None) -> tuple[int, int]:
        """Record an ended attempt with its sum; return the place of the cohort's next attempt."""
        attempt, (sequence, number) = phase.attempt, phase.attempt.opening.sequence_and_attempt
        self.links = (*self.links, phase.link)
        if isinstance(phase, Certified):
            self.sets[attempt.context], self.summed[attempt.context] = (
                phase.certificate.survivors,
                attempt.terms,
            )
        if isinstance(phase, Recovered) and attempt.spec.is_disclosed and total is not None:
            staying = tuple(
                each for each in phase.certificate.survivors if each.member in phase.summed_members
            )
            sums, first = tuple(int(count) for count in total), attempt.terms.count
            self.counted[attempt.context] = Counted(attempt.context, first, sums, staying, phase.evicted)
        retry = isinstance(phase, Voided) and number + 1 < MAX_ATTEMPTS
        return (sequence, number + 1) if retry else (sequence + 1, 0)

    def step_after(self, question: Question, period: str, repeats: bytes) -> str | None:
        """Return the step of a run to open next; None once the run is over."""
        run = (question.digest, period)
        spent = [
            link
            for link in self.links
            if (link.question, link.period) == run and link.repeats == repeats and link.spends_records
        ]
        if any(link.reason == LOST_REASON for link in spent):
            return None
        steps = {link.step for link in spent}
        if repeats == NO_CONTEXT and not self.withheld(question, period):
            steps.add(ROWS_STEP)
        return next((step for step in self.steps(question, period, repeats) if step not in steps), None)

    def run_counts(self, question: Question, period: str) -> tuple[Counted, ...]:
        """Return the counts of a run that have sums, oldest first."""
        run = question.digest, period
        named = (link.context for link in self.links if (link.question, link.period) == run)
        return tuple(self.counted[context] for context in named if context in self.counted)

    def withheld(self, question: Question, period: str) -> tuple[int, ...]:
        """Return the classes that a run leaves out by its count."""
        counts = self.run_counts(question, period)
        return withheld_classes(question, counts[0].sums) if counts else ()

    def steps(self, question: Question, period: str, repeats: bytes) -> tuple[str, ...]:
        """Return all steps of a run."""
        repeated = link_of(self.links, repeats)
        return question.steps_in(period) if repeated is None else (repeated.step,)

    def terms_of(
        self, question: Question, period: str, repeats: bytes, now_s: float, step: str | None, material: bytes
    ) -> Terms:
        """Make a step's terms, by default the next step's. `material` is ignored if the step takes none."""
        step = step or self.step_after(question, period, repeats) or self.steps(question, period, repeats)[-1]
        material = material if question.takes_material(step) else NO_CONTEXT
        made = Terms(step, NO_CONTEXT, NO_CONTEXT, (), (), material, int(now_s) + DAY_S)
        if (repeated := self.summed.get(repeats)) is not None:
            return replace(repeated, step=step, material=material, latest_end_s=made.latest_end_s)
        counts = self.run_counts(question, period)[: 2 if step == SUM_STEP else 1]
        if counts and step in {ROWS_STEP, SUM_STEP}:
            evicted = tuple(sorted({member for each in counts for member in each.evicted}))
            made = replace(
                made, count=counts[0].context, withheld=self.withheld(question, period), evicted=evicted
            )
            made = replace(made, rows=counts[1].context) if counts[1:] else made
        return made

    def rests_on(self, attempt: Attempt) -> tuple[SurvivorSet, ...]:
        """Return the set that the attempt's survivors are checked against."""
        contexts = earlier_contexts(attempt)
        return tuple(SurvivorSet(self.sets[each]) for each in contexts if each in self.sets)
