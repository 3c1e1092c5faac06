"""The checks of an opening: some for anyone with roster, study and manifest, others for members only (protocol §4.3)."""

from collections.abc import Sequence
from itertools import pairwise

from veilsum.protocol.attempt import Attempt, Finished
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link, Opening, Terms
from veilsum.protocol.study import END_MAX_S, INDICATOR_STEP, Question


def check_opening(attempt: Attempt) -> None:
    """Run the checks of an opening that need neither a clock nor a member's history, in the specification's order.

    Raises:
        PeerFault: wrong-cohort, bad-signature, chain-broken, terms-refused, already-summed, repeat-mismatch.
    """
    opening = attempt.opening
    check_signed(attempt)
    check_places(opening)
    check_step(attempt)
    check_fresh(attempt)
    repeated_link(attempt)


def check_signed(attempt: Attempt) -> None:
    """Check clause 1: the opening is for this cohort (wrong-cohort), signed by the coordinator (bad-signature)."""
    if attempt.opening.cohort != attempt.manifest.cohort:
        raise PeerFault(Cause.WRONG_COHORT, "the opening is for another cohort", ["coordinator"])
    attempt.opening.verify(attempt.roster.coordinator, "coordinator")


def check_latest_end(attempt: Attempt, now_s: float) -> None:
    """Check clause 2: the latest end is in the future (terms-expired), by at most 30 days (terms-refused)."""
    ahead_s = attempt.terms.latest_end_s - now_s
    if ahead_s <= 0:
        raise PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end has passed")
    if ahead_s > END_MAX_S:
        raise _refused(f"the latest end is {ahead_s:.0f} s ahead, at most {END_MAX_S} s are allowed")


def check_places(opening: Opening) -> None:
    """Check clause 5: the links name no attempt twice and omit none of this cohort (chain-broken)."""
    # With two links for one attempt, a member could check the one that it knows, and decryptors the other.
    if len({link.context for link in opening.links}) != len(opening.links):
        raise PeerFault(Cause.CHAIN_BROKEN, "the history names an attempt twice", ["coordinator"])
    places = [(link.sequence, link.attempt) for link in opening.links if link.cohort == opening.cohort]
    places.append(opening.place)
    if places[0] != (0, 0) or any(
        after not in {(before[0], before[1] + 1), (before[0] + 1, 0)} for before, after in pairwise(places)
    ):
        raise PeerFault(Cause.CHAIN_BROKEN, "the history skips an attempt of this cohort", ["coordinator"])


def check_step(attempt: Attempt) -> None:
    """Check clause 6: the step belongs to the study, has its material, and follows the previous step (terms-refused)."""
    spec, terms = attempt.spec, attempt.terms
    if (terms.material != NO_CONTEXT) != spec.takes_material:
        wanted = "needs material" if spec.takes_material else "takes no material"
        raise _refused(f"step {spec.step} {wanted}")
    counted = spec.sums and spec.question.withhold is not None
    if (terms.indicator != NO_CONTEXT) != counted:
        wanted = "rests on an indicator" if counted else "rests on no indicator"
        raise _refused(f"step {spec.step} {wanted}")
    if attempt.repeats:
        return
    if counted:
        if not _own(attempt, link_of(attempt.opening.links, terms.indicator), INDICATOR_STEP):
            raise _refused("the terms name an indicator that is not certified for this question and period")
        return
    steps = spec.question.steps
    if place := steps.index(spec.step):
        before = steps[place - 1]
        if not any(_own(attempt, link, before) for link in attempt.opening.links):
            raise _refused(f"step {spec.step} comes after {before}, which was not certified for this period")


def check_fresh(attempt: Attempt) -> None:
    """Check clause 7: over fresh records, each step of a period is certified or lost only once (already-summed)."""
    if attempt.repeats:
        return
    for link in attempt.opening.links:
        same = (link.question, link.period, link.step) == _run(attempt)
        if same and link.repeats == NO_CONTEXT and link.spends:
            how = "certified" if link.reason == NO_REASON else "lost"
            raise PeerFault(
                Cause.ALREADY_SUMMED,
                f"step {link.step} of period {link.period} was {how} before: take a new period, or repeat that attempt",
                ["coordinator"],
            )


def repeated_link(attempt: Attempt) -> Link | None:
    """Return the link of the repeated attempt, checked by clause 8 (repeat-mismatch); None for fresh records."""
    if not attempt.repeats:
        return None
    link = link_of(attempt.opening.links, attempt.manifest.repeats)
    if (
        link is None
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
    """Check clause 8 with the repeated attempt's evidence: both questions sum the same records in the same way.

    Raises:
        PeerFault: repeat-mismatch; indicator-mismatch if the withheld classes differ from the repeated attempt's.
    """
    if finished is None or finished.context != attempt.manifest.repeats:
        raise PeerFault(
            Cause.REPEAT_MISMATCH, "this member was not in the attempt that the run repeats", ["coordinator"]
        )
    if not same_records(attempt.question, finished.question):
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "the repeated question differs in more than extractor, dim, statistics and ring_bits",
            ["coordinator"],
        )
    if _left_out(attempt.terms) != _left_out(finished.terms):
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            "the terms leave out other classes or members than the repeated terms",
            ["coordinator"],
        )


def link_of(links: Sequence[Link], context: bytes) -> Link | None:
    """Find the link of an attempt; None if absent."""
    return next((link for link in links if link.context == context), None)


def earlier_context(attempt: Attempt) -> bytes:
    """Return the context of the repeated attempt, else of the indicator; `NO_CONTEXT` without either."""
    return attempt.manifest.repeats if attempt.repeats else attempt.terms.indicator


def _own(attempt: Attempt, link: Link | None, step: str) -> bool:
    """Whether the link is a certified step of this question and period."""
    question, period, _ = _run(attempt)
    wanted = (question, period, step, NO_REASON)
    return link is not None and (link.question, link.period, link.step, link.reason) == wanted


def _run(attempt: Attempt) -> tuple[bytes, str, str]:
    return attempt.question.digest, attempt.manifest.period, attempt.terms.step


def _left_out(terms: Terms) -> tuple[bytes, tuple[int, ...], tuple[str, ...]]:
    return terms.indicator, terms.withheld, terms.evicted


def same_records(one: Question, other: Question) -> bool:
    """Whether two questions are equal, or differ only in the extractor and fields that depend on it."""
    if one.digest == other.digest:
        return True
    free = {"extractor", "dim", "statistics", "ring_bits"}
    return one.extractor != other.extractor and one.model_dump(exclude=free) == other.model_dump(exclude=free)


def _refused(detail: str) -> PeerFault:
    return PeerFault(Cause.TERMS_REFUSED, detail, ["coordinator"])
