"""Runs that sum the records of an earlier sum again: after a failure, and with another extractor (protocol §4.2, §4.3)."""

import pytest

from tests.protocol.indicating import RARE, indicated, indicators
from tests.protocol.transcripts import verdict
from tests.support.simulator import After, Federation, Outcome, untampered
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Recovered, Revealing, Voided
from veilsum.protocol.messages import Upload

EXTRACTOR = "ab" * 32


def repeat(federation: Federation, context: bytes, **question: object) -> Outcome:
    """Form a cohort that sums the attempt's records again, and run it."""
    period = next(link.period for link in federation.links if link.context == context)
    if question:
        federation.use(federation.study_of(**question))
    federation._tell_ending()
    federation.enrol(period, context)
    return federation.run_round()


def failed(federation: Federation) -> bytes:
    """A certified set whose sum is given up."""
    federation.reach(Revealing)
    federation.phase = federation.phase.cancel(federation.now_s, "the sum failed its checks")
    assert isinstance(federation.finish().phase, Failed)
    return federation.links[-1].context


def assert_repeated(federation: Federation, outcome: Outcome, context: bytes) -> None:
    assert isinstance(outcome.phase, Recovered)
    assert outcome.faults == ()
    assert outcome.survivors == tuple(survivor.member for survivor in federation.sets[context])
    assert federation.links[-1].repeats == context
    assert federation.next_step() is None
    found = verdict(federation)
    assert (found.findings, found.kept) == ((), True)


@pytest.mark.parametrize("restart", [False, True])
def test_a_sum_that_failed_is_had_from_the_same_members(*, restart: bool) -> None:
    federation = Federation(6, drop={5: After.CARD}, restart=restart)
    context = failed(federation)
    federation.drop = {}
    outcome = repeat(federation, context)
    assert_repeated(federation, outcome, context)
    assert outcome.survivors == federation.ids[:5]
    assert federation.manifest.survivors_min == 5


def test_another_extractor_sums_the_same_records_as_often_as_there_are_extractors() -> None:
    federation = Federation(5)
    context = federation.run_round().phase.attempt.context
    for extractor, dim in ((EXTRACTOR, 12), ("cd" * 32, 8)):
        outcome = repeat(federation, context, extractor=extractor, dim=dim)
        assert_repeated(federation, outcome, context)
        assert outcome.total is not None
        assert len(outcome.total) == federation.content.question.elements


def test_a_repeated_sum_withholds_what_the_first_one_did() -> None:
    federation = indicated()
    federation.disclose()
    context = federation.run_round().phase.attempt.context
    for question in ({}, {"extractor": EXTRACTOR, "dim": 12}):
        outcome = repeat(federation, context, **question)
        assert_repeated(federation, outcome, context)
        assert outcome.phase.attempt.terms.withheld == RARE
        assert outcome.phase.attempt.terms.indicator == federation.links[0].context


def test_where_the_new_question_needs_more_rows_everybody_refuses() -> None:
    federation = indicated(question={"dim": 10})
    federation.disclose()
    context = federation.run_round().phase.attempt.context
    # 60 rows of honest members stand behind the published classes; 40 dimensions need 80
    outcome = repeat(federation, context, extractor=EXTRACTOR, dim=40)
    assert outcome.total is None
    assert {fault.cause for _, fault in outcome.faults} >= {Cause.INDICATOR_MISMATCH}
    assert federation.spool == {}


def test_an_indicator_that_is_repeated_serves_the_sum() -> None:
    """Clause 6: the indicator of a fresh sum may itself have been repeated."""
    federation = indicated()
    context = federation.links[0].context
    federation._tell_ending()
    federation.enrol("period-0", context)
    assert isinstance(federation.run_round(indicators(federation)).phase, Recovered)
    assert (federation.links[-1].step, federation.links[-1].repeats) == ("indicator", context)
    federation.disclose()
    federation._tell_ending()
    federation.enrol("period-0")
    assert federation.terms().indicator == federation.links[-1].context
    assert isinstance(federation.run_round().phase, Recovered)
    found = verdict(federation)
    assert (found.findings, found.kept) == ((), True)


def test_a_repeated_run_waits_for_every_member() -> None:
    federation = Federation(5)
    context = federation.run_round().phase.attempt.context
    federation._tell_ending()
    federation.enrol("period-0", context)
    federation.tamper = lambda sender, m: None if sender == "member-2" and isinstance(m, Upload) else m
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert (outcome.phase.fault.cause, outcome.phase.fault.parties) == (
        Cause.SURVIVORS_TOO_FEW,
        ("member-2",),
    )
    federation.tamper = untampered
    assert_repeated(federation, federation.run_round(), context)


def refused(federation: Federation, outcome: Outcome, cause: Cause) -> None:
    assert outcome.total is None
    assert {who for who, fault in outcome.faults if fault.cause is cause} >= set(federation.manifest.members)
    assert federation.spool == {}


def test_only_a_sum_over_fresh_records_is_repeated() -> None:
    federation = Federation(4)
    first = federation.run_round().phase.attempt.context
    second = repeat(federation, first).phase.attempt.context
    refused(federation, repeat(federation, second), Cause.REPEAT_MISMATCH)


def test_a_void_leaves_the_records_to_the_run_in_whatever_cohort() -> None:
    federation = Federation(5)
    federation.tamper = lambda sender, m: None if isinstance(m, Upload) else m
    assert isinstance(federation.run_round().phase, Voided)
    federation.tamper = untampered
    federation._tell_ending()
    federation.enrol("period-0")
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.faults == ()
