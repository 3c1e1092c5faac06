"""A sum withholds the classes that its count found rare, over the counted members (member: Enough rows)."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.protocol.counting import count_rows, counted, indicated
from tests.protocol.transcripts import verdict
from tests.support.refusals import refused
from tests.support.simulator import After, Federation
from veilsum.protocol.attempt import cohort_sizes
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Recovered, Voided
from veilsum.protocol.counting import check_counts, honest_rows, withheld_classes
from veilsum.protocol.messages import survivors_hash
from veilsum.protocol.replay import UploadStanding
from veilsum.protocol.study import Question

MANY_ROWS: dict[str, Any] = {"records": {"least": 50, "most": 500, "least_per_class": 15, "rows_per_id": 1}}


def question(members: int = 7, margin: int = 1, **changes: Any) -> Question:
    return Federation(members, margin=margin, question=changes).content.question


# The rules, from counts alone


def test_the_floor_is_a_h_min_and_the_margin() -> None:
    assert [question(margin=margin).class_floor for margin in (0, 1, 2)] == [4, 5, 6]
    assert withheld_classes(question(), (7, 5, 4, 1, 0, 5)) == (2, 3, 4)
    assert withheld_classes(question(), (5, 9)) == ()
    assert withheld_classes(Federation(4).content.question, (0, 0)) == ()


@pytest.mark.parametrize(
    ("reached", "rows"),
    [
        # Five of seven members are honest and there, each with four times 50 rows.
        ((7,) * 8, 5 * 200),
        ((7, 7, 7, 7, 2, 2, 2, 2), 5 * 50),
        ((7, 7, 7, 6, 3, 3, 0, 0), 287),  # 287.5
        ((7, 2, 2, 2, 2, 2, 2, 2), 62),  # 62.5
        ((2,) * 8, 0),
        ((0,) * 8, 0),
    ],
)
def test_the_levels_that_members_reach_bound_the_rows_of_honest_members(
    reached: tuple[int, ...], rows: int
) -> None:
    assert honest_rows(question(**MANY_ROWS), reached) == rows


@pytest.mark.parametrize(
    ("holders", "reached", "enough"),
    [
        ((5, 5, 5, 5), None, True),
        ((5, 5, 4, 5), None, True),  # the rows are counted next
        ((6, 0, 0, 0), None, False),  # one class makes no head
        ((5, 5, 0, 0), (7,) * 8, True),
        ((5, 5, 0, 0), (3, *(2,) * 7), False),
    ],
)
def test_two_classes_and_enough_rows_make_a_sum(
    holders: tuple[int, ...], reached: tuple[int, ...] | None, *, enough: bool
) -> None:
    with nullcontext() if enough else refused("count-mismatch", "coordinator"):
        check_counts(question(**MANY_ROWS), holders, reached)


# Whole runs


def all_refuse(federation: Federation) -> None:
    """Check that no member opens the sum or uploads."""
    outcome = federation.run_round()
    assert outcome.total is None
    assert {who for who, fault in outcome.faults if fault.cause is Cause.COUNT_MISMATCH} == {*federation.ids}
    assert federation.spool == {}


def test_a_sum_without_counted_rows_is_refused_by_everybody() -> None:
    federation = indicated()
    few = {member: np.zeros(8, np.int64) for member in federation.ids}
    count_rows(federation, few)
    all_refuse(federation)


def test_one_published_class_ends_the_run_for_everybody() -> None:
    federation = Federation(7, margin=1)
    federation.run_round(dict.fromkeys(federation.ids, np.array([1, 0, 0, 0])))
    federation.disclose()
    all_refuse(federation)


def test_false_counts_can_leave_out_all_classes_but_two() -> None:
    """A limit, not a promise (analysis: Promise): it can't be detected that one liar counted for six members."""
    federation = Federation(7, margin=1, question=MANY_ROWS)
    honest = dict.fromkeys(federation.ids[:6], np.array([1, 1, 0, 0]))
    held_by_one = {"member-0": np.array([0, 0, 1, 1])}
    federation.run_round(honest | held_by_one | {"member-6": np.array([-5, -5, 6, 6])})
    false = dict.fromkeys(federation.ids, np.zeros(8, np.int64)) | {"member-6": np.full(8, 7)}
    count_rows(federation, false)
    assert counted(federation, "member-0") == (0, 0, 7, 7)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.attempt.terms.withheld == (0, 1)


def test_more_missing_than_the_margin_void_the_round() -> None:
    federation = indicated(margin=0)
    count_rows(federation)
    federation.drop = {6: After.CARD}
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    # no member was asked to sign it: the fault names the missing member, not those that would have refused
    assert outcome.phase.fault.cause is Cause.COUNT_MISMATCH
    assert outcome.phase.fault.parties == ("member-6",)


def missed_the_count() -> Federation:
    """Member-6 was away, and learns of the counts afterwards."""
    federation = indicated(drop={6: After.OPENING})
    federation.drop = {}
    assert federation.ending is not None
    federation.tell_member("member-6", federation.ending)
    federation.disclose()
    assert counted(federation, "member-6") is not None
    return federation


def test_who_missed_the_rows_is_not_in_the_sum() -> None:
    federation = indicated()
    federation.disclose()
    federation.drop = {6: After.OPENING}
    federation.run_round(terms=federation.terms("rows"))
    federation.drop = {}
    federation.disclose()
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[:6]


def test_the_margin_is_spent_once_over_all_steps() -> None:
    federation = indicated()
    federation.disclose()
    federation.drop = {5: After.CARD}
    federation.run_round(terms=federation.terms("rows"))
    federation.disclose()
    federation.drop = {6: After.CARD}
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.phase.fault.cause is Cause.COUNT_MISMATCH
    assert outcome.phase.fault.parties == ("member-5", "member-6")


def test_who_was_not_counted_opens_no_sum() -> None:
    federation = missed_the_count()
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[:6]
    who, fault = outcome.faults[0]
    assert (who, fault.cause) == ("member-6", Cause.COUNT_MISMATCH)


@pytest.mark.parametrize("careless", [False, True])
def test_who_was_not_counted_and_uploads_all_the_same_is_left_out(
    monkeypatch: pytest.MonkeyPatch, *, careless: bool
) -> None:
    federation = missed_the_count()
    monkeypatch.setattr("veilsum.protocol.member.ready.Ready.check_counts", lambda *_: None)
    if careless:  # a coordinator that keeps uncounted members is refused by the decryptors
        monkeypatch.setattr(
            "veilsum.protocol.proposal.keep_counted", lambda _attempt, staying, _earlier: staying
        )
        monkeypatch.setattr("veilsum.protocol.coordinator.checking.check_proposal", lambda *_: None)
    outcome = federation.run_round()
    if careless:
        assert isinstance(outcome.phase, Voided)
        assert outcome.phase.fault.cause is Cause.COUNT_MISMATCH
    else:
        assert isinstance(outcome.phase, Recovered)
        assert outcome.survivors == federation.ids[:6]
        found = verdict(federation)
        standing = [found.upload_standing(member) for member in federation.ids]
        assert standing == [UploadStanding.COUNTED] * 6 + [UploadStanding.LEFT_OUT]


def test_a_count_without_a_sum_counts_nothing_and_its_step_is_over() -> None:
    federation = Federation(7, drop={0: After.VOTE, 1: After.VOTE, 2: After.VOTE}, margin=1)
    federation.begin(dict.fromkeys(federation.ids, np.ones(4, np.int64)))
    federation.phase = federation.run_until().cancel(federation.now_s)
    assert isinstance(federation.finish().phase, Failed)
    federation.drop = {}
    outcome = federation.run_round(terms=federation.terms("sum", count=federation.links[0].context))
    assert {fault.cause for _, fault in outcome.faults} >= {Cause.COUNT_MISMATCH}
    assert outcome.total is None
    again_ = federation.run_round(terms=federation.terms("count"))
    assert Cause.ALREADY_SUMMED in {fault.cause for _, fault in again_.faults}


# Evicted from the count


def test_a_forged_link_before_the_true_one_hides_no_missing_member() -> None:
    """A coordinator shows decryptors a smaller set as the counted one, so that fewer members seem to be missing."""
    federation = indicated()
    federation.disclose()
    true = federation.links[0]
    forged = federation.sets[true.context][:5]
    digest = survivors_hash(true.context, forged)
    false = replace(true, cohort=bytes(32), survivors=digest)
    federation.links = (false, true)
    federation.sets[true.context] = forged
    federation.drop = {5: After.CARD, 6: After.CARD}
    outcome = federation.run_round()
    assert outcome.total is None
    assert {fault.cause for _, fault in outcome.faults} >= {Cause.CHAIN_BROKEN}
    assert federation.spool == {}


def test_a_cohort_that_could_never_count_is_not_formed() -> None:
    """Of eight members six must be in a sum, so a count needs eight with a margin of two."""
    federation = Federation(8, margin=2, question={"members_min": 7})
    roster, asked = federation.roster, federation.content.question
    assert cohort_sizes(roster, asked, federation.ids, repeats=False).quorum.survivors_min == 6
    with refused("cohort-too-small"):
        cohort_sizes(roster, asked, federation.ids[:7], repeats=False)
