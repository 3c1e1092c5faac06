"""Receipts, complaints, and whom they cost what."""

from dataclasses import replace

from protocol.causes import Cause
from protocol.helpers.coordinator import Checking, Freezing, Voiding
from protocol.helpers.simulator import HelperFederation
from tests.protocol.helpers.coordinator.answers import cause, checked, receipt


def test_a_receipt_covers_what_was_sent_and_is_its_helper_s_only_one(
    federation: HelperFederation, checking: Checking
) -> None:
    good, now = receipt(federation, "helper-0"), federation.now_s
    for changed, expected in (
        (receipt(federation, "helper-0", context=bytes(32)), Cause.WRONG_CONTEXT),
        (receipt(federation, "client-0"), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (receipt(federation, "helper-0", dealers=federation.ids[1:]), Cause.MALFORMED),
        (receipt(federation, "helper-0", complaints=federation.ids[:1]), Cause.MALFORMED),
    ):
        assert cause(checking.receive, changed, now) == expected
    once = checking.receive(good, now)
    assert once.receive(good, now) is once
    assert cause(once.receive, receipt(federation, "helper-0", 1), now) == Cause.CONFLICT
    assert once.waiting_for() == federation.helpers[1:]
    assert once.request_for("helper-0") is None
    assert checking.request_for("stranger") is None


def members(phase: Freezing) -> list[int]:
    return [int(survivor.member.removeprefix("client-")) for survivor in phase.survivors]


def test_whoever_is_complained_about_is_dropped(federation: HelperFederation, checking: Checking) -> None:
    phase = checked(federation, checking, (), (3,), (), (5,))
    assert isinstance(phase, Freezing)
    assert members(phase) == [0, 1, 2, 4, 6, 7]
    assert phase.panel == federation.helpers


def test_a_helper_that_complains_about_more_than_a_is_left_out(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (), (0, 1, 2), (), ())
    assert isinstance(phase, Freezing)
    assert members(phase) == list(range(8))
    assert phase.panel == ("helper-0", "helper-2", "helper-3")
    assert phase.request_for("helper-1") is None


def test_a_helper_is_left_out_where_its_complaints_would_leave_too_few(
    federation: HelperFederation, checking: Checking
) -> None:
    # four disputes leave 4 < n_min; without helper-3 they are two
    phase = checked(federation, checking, (), (0,), (1,), (2, 3))
    assert isinstance(phase, Freezing)
    assert members(phase) == [2, 3, 4, 5, 6, 7]
    assert phase.panel == ("helper-0", "helper-1", "helper-2")


def test_the_attempt_ends_where_no_panel_leaves_enough(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (0, 1), (2, 3), (4, 5), (6, 7))
    assert isinstance(phase, Voiding)
    assert phase.fault.cause == Cause.SURVIVORS_TOO_FEW
    assert phase.fault.parties == federation.ids


def test_the_attempt_ends_where_two_helpers_complain_about_more_than_a(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (0, 1, 2), (5, 6, 7), (), ())
    assert isinstance(phase, Voiding)
    assert (phase.fault.cause, phase.fault.parties) == (Cause.BOX_REFUSED, ("helper-0", "helper-1"))


def test_three_receipts_are_enough_when_time_is_up(federation: HelperFederation, checking: Checking) -> None:
    three = checked(federation, checking, (), (), ())
    assert isinstance(three, Checking)
    phase = three.expire(federation.now_s)
    assert isinstance(phase, Freezing)
    assert phase.panel == federation.helpers[:3]
    two = checked(federation, checking, (), ()).expire(federation.now_s)
    assert isinstance(two, Voiding)
    assert (two.fault.cause, two.fault.parties) == (Cause.QUORUM_LOST, federation.helpers[2:])
