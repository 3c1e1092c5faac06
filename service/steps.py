"""The steps of a run: which is next, and the terms under which it is opened (protocol §4.3).

A run is what a study says, for one period, over fresh records or those of one certified attempt. Whatever it needs follows from the study
and the federation's chain: nobody chooses it. What the chain already rules out is refused here in words, before any member is asked.
"""

import asyncio
import hashlib
import math
from collections.abc import Sequence

from service.catalogue import Catalogue
from service.cohorts import Cohort
from service.documents import MATERIAL
from service.federations import Federations
from service.problems import named
from service.rounds import Round
from service.runs import next_step
from service.storage.blobs import Blobs
from veilsum.protocol.attempt import Attempt, Finished
from veilsum.protocol.causes import Cause
from veilsum.protocol.cost import plan_of
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    COMMITMENT_BYTES,
    NO_CONTEXT,
    NO_REASON,
    SHARE_BYTES,
    Certificate,
    Link,
    Study,
    Survivor,
    Terms,
)
from veilsum.protocol.messages.opening import LOST_REASON, MAX_LINKS
from veilsum.protocol.opening_rules import check_opening, check_repeats, link_of, same_records
from veilsum.protocol.rare_classes import check_enough_rows, withheld_classes
from veilsum.protocol.rest import MAX_DISCLOSURE_BYTES, RoundRequest, round_name
from veilsum.protocol.study import END_MAX_S, INDICATOR_STEP, SUM_STEP, Question, read_content
from veilsum.study.promise import check_cohort

HOUR_S = 3600


def material_link(attempt: Attempt) -> Link | None:
    """The step whose result this one takes as material; None where it takes none."""
    spec = attempt.spec
    if not spec.takes_material:
        return None
    steps = spec.question.steps
    before = steps[steps.index(spec.step) - 1]
    return _certified(attempt.opening.links, spec.question, spec.period, before)


class Steps:
    """What the next round of a cohort is.

    Args:
        federations: their chains.
        catalogue: their rounds.
    """

    def __init__(self, federations: Federations, catalogue: Catalogue) -> None:
        self._federations, self._catalogue = federations, catalogue

    async def next(self, cohort: Cohort) -> str | None:
        """The step of a round that is opened now; None once the run is over."""
        enrolling = cohort.enrolling
        links = await self._federations.links(cohort.roster.federation.hex())
        return next_step(
            cohort.content.question, enrolling.period, enrolling.repeats, enrolling.cohort, links
        )

    async def check_new(
        self, federation: str, study: Study, period: str, repeats: bytes
    ) -> tuple[Survivor, ...]:
        """Refuse a run that is over, or that repeats nothing which it may; the repeated survivors, none over fresh records.

        Raises:
            PeerFault: already-summed, terms-refused, repeat-mismatch.
        """
        question = read_content(study.content).question
        links = await self._federations.links(federation)
        if repeats == NO_CONTEXT:
            if next_step(question, period, repeats, b"", links) is None:
                raise _over(question, period, repeats, links)
            return ()
        if question.noise is not None:
            raise _refused("a noisy study is never repeated: open the cohort for a new period")
        link = link_of(links, repeats)
        if link is None or link.reason != NO_REASON or link.repeats != NO_CONTEXT:
            raise PeerFault(
                Cause.REPEAT_MISMATCH,
                f"{repeats.hex()} is no certified attempt over fresh records of this federation: give the context of one, as its "
                "round shows it",
            )
        if link.period != period:
            raise PeerFault(
                Cause.REPEAT_MISMATCH, f"the attempt was of period {link.period}: repeat it as {link.period}"
            )
        earlier = await self._catalogue.round(round_name(repeats))
        if not same_records(question, earlier.attempt.question):
            raise PeerFault(
                Cause.REPEAT_MISMATCH,
                "the study asks for other records than the repeated attempt's: it may have another extractor, and then another dim, "
                "other statistics and ring_bits, and must be the same in everything else",
            )
        return certificate_of(earlier).survivors

    async def terms(self, cohort: Cohort, request: RoundRequest, now_s: float) -> Terms:
        """The terms of the cohort's next round.

        Raises:
            PeerFault: already-summed once the run is over; terms-refused, indicator-mismatch, where no member would take part; with
                what to do.
        """
        question, enrolling = cohort.content.question, cohort.enrolling
        links = await self._federations.links(cohort.roster.federation.hex())
        if len(links) >= MAX_LINKS:
            raise _refused(f"the chain holds {MAX_LINKS:,} attempts, and no more fit: found a new federation")
        step = next_step(question, enrolling.period, enrolling.repeats, enrolling.cohort, links)
        if step is None:
            raise _over(question, enrolling.period, enrolling.repeats, links)
        latest_end_s = int(now_s) + _lifetime_s(question, request.lifetime_s)
        if enrolling.repeats != NO_CONTEXT:
            repeated = (await self._catalogue.round(round_name(enrolling.repeats))).attempt.terms
            if repeated.indicator != NO_CONTEXT:
                counted = await self._catalogue.round(round_name(repeated.indicator))
                _check_withheld(question, repeated, counted.view().holders)
            return Terms(
                step, repeated.indicator, repeated.withheld, repeated.evicted, NO_CONTEXT, latest_end_s
            )
        material = await self._material(question, enrolling.period, step, links)
        if step != SUM_STEP or question.withhold is None:
            return Terms(step, NO_CONTEXT, (), (), material, latest_end_s)
        counted = await self._counted(question, enrolling.period, links)
        _check_counted(cohort, counted)
        holders = counted.view().holders
        check_enough_rows(question, holders)
        evicted = tuple(sorted(counted.view().evicted))
        withheld = withheld_classes(question, holders)
        return Terms(step, counted.attempt.context, withheld, evicted, NO_CONTEXT, latest_end_s)

    async def eligible(self, attempt: Attempt) -> tuple[str, ...]:
        """The members that may be in the sum: all of the cohort, or those whom the indicator counted."""
        if attempt.repeats or attempt.terms.indicator == NO_CONTEXT:
            return attempt.members
        certified = await self._catalogue.certified(attempt.terms.indicator)
        return tuple(each.member for each in certified if each.member not in attempt.terms.evicted)

    async def check(self, attempt: Attempt, blobs: Blobs) -> None:
        """Refuse an attempt that members would refuse, or that the disk has no room for."""
        finished = None
        if attempt.repeats:
            earlier = await self._catalogue.round(round_name(attempt.manifest.repeats))
            own, survivors = earlier.attempt, certificate_of(earlier).survivors
            finished = Finished(own.context, own.study, own.terms, survivors)

        def check() -> None:
            check_opening(attempt)
            if attempt.repeats:
                check_repeats(attempt, finished)
            check_cohort(attempt.spec)
            _check_disclosure(attempt)
            _check_room(attempt, blobs)

        await asyncio.to_thread(check)  # of 10,000 members it takes a while

    async def _counted(self, question: Question, period: str, links: Sequence[Link]) -> Round:
        """The newest certified indicator of a run that has counts."""
        contexts = [
            link.context
            for link in reversed(links)
            if _is(link, question, period, INDICATOR_STEP) and link.reason == NO_REASON
        ]
        for context in contexts:
            found = await self._catalogue.round(round_name(context))
            if found.view().holders:
                return found
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            "the indicator of this period was certified and has no counts: repeat it in a cohort with "
            f"repeats={contexts[-1].hex()}, or take a new period",
        )

    async def _material(self, question: Question, period: str, step: str, links: Sequence[Link]) -> bytes:
        if not question.takes_material(step):
            return NO_CONTEXT
        before = question.steps[question.steps.index(step) - 1]
        link = _certified(links, question, period, before)
        content = None
        if link is not None:
            content = await self._left_by(link)
        if content is None:
            raise _refused(
                f"step {before} of period {period} was certified and has no result, and {step} needs it: take a new period"
            )
        return hashlib.sha256(content).digest()

    async def material(self, attempt: Attempt) -> bytes | None:
        """The file that members fetch beside the opening; None where the step takes none."""
        link = material_link(attempt)
        return None if link is None else await self._left_by(link)

    async def _left_by(self, link: Link) -> bytes | None:
        """What a certified step leaves to the next one; None where it has no result."""
        documents = (await self._catalogue.round(round_name(link.context))).documents
        return None if documents.record is None else await asyncio.to_thread(documents.document, MATERIAL)


def certificate_of(round_: Round) -> Certificate:
    """The certificate of a round that was certified."""
    assert isinstance(round_.closing, Certificate)
    return round_.closing


def _is(link: Link, question: Question, period: str, step: str) -> bool:
    return (link.question, link.period, link.step) == (question.digest, period, step)


def _certified(links: Sequence[Link], question: Question, period: str, step: str) -> Link | None:
    """The certified attempt at a step over fresh records."""
    return next(
        (
            link
            for link in links
            if _is(link, question, period, step) and link.reason == NO_REASON and link.repeats == NO_CONTEXT
        ),
        None,
    )


def _lifetime_s(question: Question, asked_s: float | None) -> int:
    windows = question.windows
    least_s = windows.upload + 3 * windows.answer
    if asked_s is None:
        return max(least_s, min(END_MAX_S - HOUR_S, max(HOUR_S, 2 * least_s)))
    if asked_s < least_s:
        raise _refused(
            f"lifetime_s is {asked_s:g}: the study's windows take {least_s} s (upload + 3 · answer); give it as long, or leave it out"
        )
    return math.ceil(asked_s)


def _over(question: Question, period: str, repeats: bytes, links: Sequence[Link]) -> PeerFault:
    own = [
        link
        for link in links
        if (link.question, link.period, link.repeats) == (question.digest, period, repeats) and link.spends
    ]
    if lost := [link for link in own if link.reason == LOST_REASON]:
        detail = f"the admin closed step {lost[0].step} of period {period} (round {round_name(lost[0].context)}), so its records are spent"
        remedy = "take a new period, with new records"
    else:
        last = round_name(own[-1].context) if own else round_name(repeats)
        detail = f"the last step of period {period} was certified in round {last}, so its records are spent"
        remedy = "take a new period, with new records, or repeat that attempt in a cohort with `repeats`"
    return PeerFault(Cause.ALREADY_SUMMED, f"{detail}: {remedy}")


def _check_withheld(question: Question, repeated: Terms, holders: Sequence[int]) -> None:
    """Refuse to sum records again by a question that leaves out other classes, or wants more rows behind them (protocol §8.3)."""
    check_enough_rows(question, holders)
    withheld = withheld_classes(question, holders)
    if withheld != repeated.withheld:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"by the study's question {len(withheld)} classes are withheld, by the repeated attempt's {len(repeated.withheld)}: "
            "give it statistics whose floor is the same",
        )


def _check_counted(cohort: Cohort, counted: Round) -> None:
    """Refuse a sum if too few of the members that the indicator counted have enrolled (protocol §8.3)."""
    manifest, question = cohort.formed(), cohort.content.question
    assert question.withhold is not None
    evicted = set(counted.view().evicted)
    names = {each.member for each in certificate_of(counted).survivors} - evicted
    missing = sorted(names - manifest.place.keys())
    here = len(names) - len(missing)
    if len(missing) > question.withhold.margin or here < manifest.survivors_min:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"the indicator counted {len(names)} members, and {named(missing)} did not enrol in this cohort; at most "
            f"{question.withhold.margin} may be missing, and {manifest.survivors_min} are needed: wait for them and open another "
            "cohort of this period; if they can't come, take a new period, with new records",
            missing,
        )


def _check_disclosure(attempt: Attempt) -> None:
    """Refuse an indicator whose disclosure would be longer than a member reads (terms-refused)."""
    spec, members = attempt.spec, len(attempt.members)
    # A header, a path and the lengths take at most 2 KiB.
    each = 2048 + (COMMITMENT_BYTES + SHARE_BYTES) * (1 + attempt.neighbour_count) + 8 * spec.elements
    if spec.indicator and members * each > MAX_DISCLOSURE_BYTES:
        raise _refused(
            f"members recount the indicator from up to {members * each:,} bytes, and read at most {MAX_DISCLOSURE_BYTES:,}: form a "
            "smaller cohort"
        )


def _check_room(attempt: Attempt, blobs: Blobs) -> None:
    """Refuse a round whose uploads and sums do not fit the disk (terms-refused). Rounds of other federations are not counted."""
    free_bytes = blobs.free_bytes()
    uploads_bytes = plan_of(attempt).cost.stored_bytes
    sums_bytes = 16 * attempt.spec.elements  # while it is added up, and as it is kept
    if free_bytes is not None and free_bytes < uploads_bytes + sums_bytes:
        raise _refused(
            f"{len(attempt.members)} uploads take {uploads_bytes:,} bytes and their sum {sums_bytes:,}, and the coordinator's disk "
            f"has {free_bytes:,} left: make room there, or keep uploads elsewhere (VEILSUM_BLOBS_URL)"
        )


def _refused(detail: str) -> PeerFault:
    return PeerFault(Cause.TERMS_REFUSED, detail)
