"""The checks of an opening: some for anyone with roster, study and manifest, others for members only (wire: Openings).

`next_step` chooses a run's next step by the rule that `check_step` enforces: the coordinator opens what members accept.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from veilsum.protocol.attempt import Attempt, Finished
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import CountOutcome, check_outcomes, withheld_classes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link, Opening, Terms
from veilsum.protocol.study import COUNT_STEP, DISCLOSED_STEPS, END_MAX_S, ROWS_STEP, SUM_STEP, Question


def check_opening(attempt: Attempt) -> None:
    """Run the checks of an opening that need neither a clock nor a member's history, in the specification's order.

    Raises:
        PeerFault: wrong-cohort, bad-signature, chain-broken, terms-refused, already-summed, repeat-mismatch.
    """
    opening = attempt.opening
    check_signed(attempt)
    check_places(opening)
    check_step(attempt)
    repeated_link(attempt)


def check_signed(attempt: Attempt) -> None:
    """Check OPEN-1 and OPEN-2: the opening is for this cohort (wrong-cohort), signed by the coordinator (bad-signature)."""
    if attempt.opening.cohort != attempt.manifest.cohort:
        raise PeerFault(Cause.WRONG_COHORT, "the opening is for another cohort", ["coordinator"])
    attempt.opening.verify(attempt.roster.coordinator, "coordinator")


def check_latest_end(attempt: Attempt, now_s: float) -> None:
    """Check OPEN-5 and OPEN-6: the latest end is in the future (terms-expired), by at most 30 days (terms-refused)."""
    ahead_s = attempt.terms.latest_end_s - now_s
    if ahead_s <= 0:
        raise PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end has passed")
    if ahead_s > END_MAX_S:
        raise _terms_fault(f"the latest end is {ahead_s:.0f} s ahead, at most {END_MAX_S} s are allowed")


def check_places(opening: Opening) -> None:
    """Check OPEN-12 and OPEN-13: the links name no attempt twice and omit none of this cohort (chain-broken)."""
    # With two links for one attempt, a member could check the one that it knows, and decryptors the other.
    if len({link.context for link in opening.links}) != len(opening.links):
        raise PeerFault(Cause.CHAIN_BROKEN, "the history names an attempt twice", ["coordinator"])
    places = [(link.sequence, link.attempt) for link in opening.links if link.cohort == opening.cohort]
    places.append(opening.sequence_and_attempt)
    if places[0] != (0, 0) or any(
        after not in {(before[0], before[1] + 1), (before[0] + 1, 0)} for before, after in pairwise(places)
    ):
        raise PeerFault(Cause.CHAIN_BROKEN, "the history skips an attempt of this cohort", ["coordinator"])


def check_step(attempt: Attempt) -> None:
    """Check OPEN-15 to OPEN-19: the terms fit the step (terms-refused), and over fresh records it may be opened (`step_fault`)."""
    spec, terms = attempt.spec, attempt.terms
    if (terms.material != NO_CONTEXT) != spec.takes_material:
        wanted = "needs material" if spec.takes_material else "takes no material"
        raise _terms_fault(f"step {spec.step} {wanted}")
    _check_counts_named(attempt)
    if attempt.repeats:
        return
    links = attempt.opening.links
    for step, context in ((COUNT_STEP, terms.count), (ROWS_STEP, terms.rows)):
        counts = certified_links(spec.question, spec.period, step, links)
        certified = [link.context for link in counts if link.repeats == NO_CONTEXT]
        if context not in {NO_CONTEXT, *certified}:
            raise _terms_fault(
                f"the terms name a step {step} that is not certified for this question and period"
            )
    if (fault := step_fault(spec.question, spec.period, spec.step, links)) is not None:
        raise fault


def _check_counts_named(attempt: Attempt) -> None:
    """Check that the terms name a count and rows, and withhold classes, as far as the step rests on them (terms-refused)."""
    spec, terms = attempt.spec, attempt.terms
    withholds = spec.question.withhold is not None
    if (terms.count != NO_CONTEXT) != (withholds and spec.step in {ROWS_STEP, SUM_STEP}):
        wanted = "rests on no count" if terms.count != NO_CONTEXT else "rests on a count"
        raise _terms_fault(f"step {spec.step} {wanted}")
    if spec.step == ROWS_STEP and not terms.withheld:
        raise _terms_fault("the rows are counted only if a class is withheld")
    if (terms.rows != NO_CONTEXT) != (spec.step == SUM_STEP and bool(terms.withheld)):
        wanted = "rests on no counted rows" if terms.rows != NO_CONTEXT else "rests on counted rows"
        raise _terms_fault(f"step {spec.step}, with {len(terms.withheld)} classes withheld, {wanted}")


def step_fault(question: Question, period: str, step: str, links: Sequence[Link]) -> PeerFault | None:
    """Return why a step can't be opened over fresh records (OPEN-18, OPEN-19); None if it can.

    It can once the step before it is certified (terms-refused), until it is certified or lost itself (already-summed).
    """
    under_count = question.withhold is not None and step in {ROWS_STEP, SUM_STEP}
    before = COUNT_STEP if under_count else question.step_before(step)
    if before is not None and not certified_links(question, period, before, links):
        return _terms_fault(f"step {step} comes after {before}, which was not certified for this period")
    return _spent_fault(question, period, step, links)


def check_unspent(attempt: Attempt, links: Sequence[Link]) -> None:
    """Check OPEN-19 against these links: over fresh records a step of a period is certified or lost once (already-summed)."""
    run = attempt.question, attempt.manifest.period, attempt.terms.step
    if not attempt.repeats and (fault := _spent_fault(*run, links)) is not None:
        raise fault


def _spent_fault(question: Question, period: str, step: str, links: Sequence[Link]) -> PeerFault | None:
    fresh = question.digest, period, step, NO_CONTEXT
    for link in links:
        if (link.question, link.period, link.step, link.repeats) == fresh and link.spends_records:
            how = "certified" if link.reason == NO_REASON else "lost"
            remedy = "take a new period, with new records"
            if step in DISCLOSED_STEPS:
                remedy = "a count is never repeated and spends nothing. Take a new period: the same records may take part in it"
            elif link.reason == NO_REASON and step == SUM_STEP and question.noise is None:
                remedy = "take a new period, or repeat that attempt"
            return PeerFault(
                Cause.ALREADY_SUMMED,
                f"step {step} of period {period} was {how} before: {remedy}",
                ["coordinator"],
            )
    return None


CountOutcomes = Callable[[bytes], CountOutcome | None]
"""What a certified count found, by its context; None if it has no sums."""


def next_step(
    question: Question,
    period: str,
    links: Sequence[Link],
    outcomes: CountOutcomes,
    *,
    repeats: bytes = NO_CONTEXT,
    cohort: bytes = NO_CONTEXT,
) -> str | None:
    """Return the next step of a run; None once the run is over.

    A run over fresh records continues in any cohort of its question and period. A run that repeats an attempt has one step and one cohort.

    Args:
        question: of the study.
        period: of the run.
        links: the federation's chain.
        outcomes: of the run's certified counts.
        repeats: context of the attempt that the run repeats; `NO_CONTEXT` for fresh records.
        cohort: of a run that repeats an attempt.
    """
    if repeats != NO_CONTEXT:
        repeated = link_of(links, repeats)
        spent = any(link.cohort == cohort and link.spends_records for link in links)
        return None if repeated is None or spent else repeated.step
    run = [link for link in links if (link.question, link.period) == (question.digest, period)]
    steps = question.steps_in(period)
    if COUNT_STEP in steps:
        steps = _steps_under_counts(question, period, run, outcomes)
    return next((step for step in steps if step_fault(question, period, step, run) is None), None)


def _steps_under_counts(
    question: Question, period: str, run: Sequence[Link], outcomes: CountOutcomes
) -> tuple[str, ...]:
    """Return the step that a run of a study that withholds classes comes to by its counts; none if they allow no further step."""
    counts = certified_links(question, period, COUNT_STEP, run)
    if not counts:
        return (COUNT_STEP,)
    if (count := outcomes(counts[0].context)) is None:
        return ()  # a count is never repeated
    found, withholds = [count], bool(withheld_classes(question, count.sums))
    if withholds and (links := certified_links(question, period, ROWS_STEP, run)):
        if (rows := outcomes(links[0].context)) is None:
            return ()
        found.append(rows)
    try:
        check_outcomes(question, found)
    except PeerFault:
        return ()
    return (ROWS_STEP,) if withholds and not found[1:] else (SUM_STEP,)


def repeated_link(attempt: Attempt) -> Link | None:
    """Return the link of the repeated attempt, checked by OPEN-20 (repeat-mismatch); None for fresh records."""
    if not attempt.repeats:
        return None
    link = link_of(attempt.opening.links, attempt.manifest.repeats)
    if (
        link is None
        or attempt.terms.step in DISCLOSED_STEPS
        or (link.period, link.step, link.reason) != (attempt.manifest.period, attempt.terms.step, NO_REASON)
        or link.repeats != NO_CONTEXT
    ):
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "the run repeats an attempt that is not certified for this period and step over fresh records",
            ["coordinator"],
        )
    return link


def check_repeats(attempt: Attempt, finished: Finished | None) -> None:
    """Check OPEN-21 and OPEN-22 with the repeated attempt's evidence: both questions sum the same records in the same way.

    Raises:
        PeerFault: repeat-mismatch; count-mismatch if the withheld classes differ from the repeated attempt's.
    """
    if finished is None or finished.context != attempt.manifest.repeats:
        raise PeerFault(
            Cause.REPEAT_MISMATCH, "this member was not in the attempt that the run repeats", ["coordinator"]
        )
    if not same_records(attempt.question, finished.question):
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "the repeated question differs in more than extractor, dim, columns, ring_bits and statistics of the same kinds",
            ["coordinator"],
        )
    if _left_out(attempt.terms) != _left_out(finished.terms):
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            "the terms leave out other classes or members than the repeated terms",
            ["coordinator"],
        )


def link_of(links: Sequence[Link], context: bytes) -> Link | None:
    """Find the link of an attempt; None if absent."""
    return next((link for link in links if link.context == context), None)


def certified_links(question: Question, period: str, step: str, links: Sequence[Link]) -> list[Link]:
    """Return the certified attempts at a step of a run, repeats included, oldest first."""
    wanted = question.digest, period, step, NO_REASON
    return [link for link in links if (link.question, link.period, link.step, link.reason) == wanted]


def count_contexts(links: Sequence[Link]) -> tuple[bytes, ...]:
    """Return the contexts of all certified counts, of classes and of rows, oldest first."""
    return tuple(link.context for link in links if link.step in DISCLOSED_STEPS and link.reason == NO_REASON)


def earlier_contexts(attempt: Attempt) -> tuple[bytes, ...]:
    """Return the attempts that this one rests on, oldest first: the repeated one, else the counts that the terms name."""
    return (attempt.manifest.repeats,) if attempt.repeats else attempt.terms.counts


def _left_out(terms: Terms) -> tuple[tuple[bytes, ...], tuple[int, ...], tuple[str, ...]]:
    return terms.counts, terms.withheld, terms.evicted


def same_records(one: Question, other: Question) -> bool:
    """Whether two questions are equal, or differ only in the extractor and fields that depend on it."""
    if one.digest == other.digest:
        return True
    free = {"extractor", "dim", "columns", "statistics", "ring_bits"}
    alike = all(one.has_statistic(kind) == other.has_statistic(kind) for kind in ("ccvr", "random-features"))
    return (
        one.extractor != other.extractor
        and alike
        and one.model_dump(exclude=free) == other.model_dump(exclude=free)
    )


def _terms_fault(detail: str) -> PeerFault:
    return PeerFault(Cause.TERMS_REFUSED, detail, ["coordinator"])
