"""Dealers and decryptors against each other: who is dropped, who is blamed, and that there is a sum."""

from collections.abc import Mapping

import pytest

from tests.protocol.transcripts import verdict
from tests.support.forging import complaining, false_dealers, for_some, in_turn, swallowing
from tests.support.simulator import After, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Recovered
from veilsum.protocol.messages import Receipt, Upload


@pytest.mark.parametrize("lost", [3, 4])
def test_a_dealer_of_one_bad_box_takes_one_loss_from_the_sum(lost: int) -> None:
    """It has eleven clean receipts of twelve, as many as an undisputed dealer: after three dropouts, eight holders are left."""
    federation = Federation(12, drop=dict.fromkeys(range(12 - lost, 12), After.VOTE))
    false_dealers(federation, {"member-00": for_some("member-01")}, commit=False)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered if lost == 3 else Failed)


# Complaints that need no cover


def test_one_false_complaint_stops_no_exact_round_over_the_same_records() -> None:
    """All twelve members are needed again. The transcript names the liar as one of two parties, and no member is dropped."""
    federation = Federation(12)
    federation.run_round()
    for accused in (("member-00",), federation.ids[2:]):
        federation.tamper = complaining(federation, {"member-01": accused})
        outcome = federation.run_round()
        assert isinstance(outcome.phase, Recovered)
        assert outcome.survivors == federation.ids
        assert outcome.phase.disputes == ()
        found = verdict(federation)
        assert found.is_faultless
        assert {(each.cause, "member-01" in each.parties) for each in found.findings} == {
            (Cause.BOX_REFUSED, True)
        }


@pytest.mark.parametrize("members", [8, 12])
def test_whoever_colludes_and_falls_silent_leaves_a_dealer_that_was_not_dropped_its_holders(
    members: int,
) -> None:
    """All colluders send clean receipts except one, and none of them reveals: t honest members still hold every dealer's shares."""
    federation = Federation(members, drop=dict.fromkeys(range(1, 1 + members // 4), After.VOTE))
    liar, dealer = federation.ids[1], federation.ids[0]
    federation.tamper = complaining(federation, {liar: (dealer,)})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert (dealer in outcome.survivors) == (members == 12)


def staying_away(federation: Federation, complaints: Mapping[str, tuple[str, ...]]) -> None:
    """Have these members complain about true boxes, and upload nothing themselves."""
    federation.tamper = in_turn(swallowing(Upload, *complaints), complaining(federation, complaints))


@pytest.mark.parametrize("members", [5, 8, 12])
def test_colluders_who_complain_and_do_not_upload_cost_nobody_else_where_the_sum_cannot_spare_them(
    members: int,
) -> None:
    """Each of `a` colluders complains about another honest member. With the colluders, 2a members would be missing."""
    federation = Federation(members)
    colluders = federation.content.question.a
    liars = federation.ids[:colluders]
    honest = federation.ids[colluders:]
    staying_away(
        federation, {liar: (dealer,) for liar, dealer in zip(liars, honest[: len(liars)], strict=True)}
    )
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert set(outcome.survivors) == set(honest)
    assert federation.phase.attempt.quorum.survivors_min <= len(honest)
    found = verdict(federation)
    assert found.is_faultless
    assert all({*each.parties} & {*liars} for each in found.findings)


def test_nor_do_those_who_fall_silent_beside_them() -> None:
    """One colluder is silent, so that no dealer has receipts to spare; the two others complain about one dealer each."""
    federation = Federation(12, drop={0: After.OPENING})
    staying_away(federation, {"member-01": ("member-03",), "member-02": ("member-04",)})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[3:]


def test_false_dealers_who_fall_silent_take_nobody_with_them() -> None:
    """Two of eight members deal badly and send no receipt. With six receipts, one bad box is enough, and no other member is lost."""
    federation = Federation(8)
    bad = {"member-0": for_some("member-1"), "member-4": for_some("member-1", "member-6")}
    false_dealers(federation, bad, commit=False)
    federation.tamper = in_turn(swallowing(Receipt, *bad), federation.tamper)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert set(outcome.survivors) == {*federation.ids} - {*bad}


def test_a_false_dealer_is_dropped_on_the_word_of_who_has_not_uploaded_while_the_sum_can_spare_it() -> None:
    """Two honest members come too late to be counted, and their boxes are bad. With the dealer in it, the sum would starve."""
    federation = Federation(12, drop=dict.fromkeys((0, 10, 11), After.VOTE))
    late = ("member-01", "member-02")
    false_dealers(federation, {"member-00": for_some(*late)}, commit=False)
    federation.tamper = in_turn(swallowing(Upload, *late), federation.tamper)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[3:]
