"""Decryptors whose boxes reach them after the proposal (protocol §4.5): they sign and reveal like the others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.protocol.transcripts import doctored, find, kinds, named, verdict
from tests.support.forging import again, reupload
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    CoordinatorPhase,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.messages import (
    Certificate,
    Deliveries,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Reveal,
    Upload,
)

LATE = ("member-08", "member-09", "member-10", "member-11")
"""Of twelve, of whom eight must sign and three may collude."""


Stages = tuple[type[CoordinatorPhase], ...]


def federation_of(*away_in: type[CoordinatorPhase], silent_after: After = After.REVEAL) -> Federation:
    """The late ones hear nothing in these phases; three who were prompt vanish after this."""
    federation = Federation(12, drop=dict.fromkeys(range(3), silent_after))

    def tamper(sender: str, message: Message) -> Message | None:
        away = sender.removeprefix("coordinator>") in LATE and isinstance(federation.phase, away_in)
        return None if away and isinstance(message, Deliveries | Certificate) else message

    federation.tamper = tamper
    return federation


def proposed() -> Federation:
    """The proposal stands over eight receipts, and nobody has signed."""
    federation = federation_of(Checking)
    federation.begin()
    assert isinstance(federation.run_until(Freezing), Freezing)
    return federation


def receipt_of(federation: Federation, member: str, **changes: Any) -> Receipt:
    """What a late decryptor answers to its boxes, changed and signed."""
    deliveries = of(Deliveries, federation.phase.request_for(member))
    answer = federation.answered(member, deliveries, Receipt)
    return again(answer, federation.keys[member], **changes)


@pytest.mark.parametrize(
    ("away_in", "silent_after"),
    [((Checking,), After.RECEIPT), ((Checking,), After.VOTE), ((Checking, Freezing), After.VOTE)],
)
def test_as_many_as_collude_fall_silent_and_the_late_carry_the_sum(
    away_in: Stages, silent_after: After
) -> None:
    federation = federation_of(*away_in, silent_after=silent_after)
    vectors = federation.vectors()
    outcome = federation.run_round(vectors)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, sum(vectors.values()))
    # as an auditor sees it: receipts after the proposal, and nobody to blame
    order = kinds(federation.transcript)
    assert order.index("Freeze") < max(index for index, kind in enumerate(order) if kind == "Receipt")
    judged = verdict(federation)
    assert judged.findings == ()
    assert judged.counted(LATE[0])


def test_where_nobody_comes_late_the_same_silence_leaves_no_sum() -> None:
    federation = federation_of(Checking, Freezing, Revealing, silent_after=After.RECEIPT)
    federation.begin()
    assert isinstance(federation.run_until(Revealing), VoidedByErasure)


def test_a_late_decryptor_is_asked_for_its_receipt_then_for_its_vote() -> None:
    federation = proposed()
    phase, late = federation.phase, LATE[0]
    assert phase.waiting_for() == federation.ids
    receipt = receipt_of(federation, late)
    after = of(Freezing, phase.receive(receipt, federation.now_s))
    assert after.deadline_s == phase.deadline_s
    assert isinstance(after.request_for(late), Freeze)
    assert after.receive(receipt, federation.now_s) is after


def test_what_a_late_receipt_complains_of_drops_nobody_and_binds_its_sender() -> None:
    federation = federation_of(Checking)
    honest, late = federation.tamper, LATE[0]

    def complaining(sender: str, message: Message) -> Message | None:
        if sender == late and isinstance(message, Receipt):
            dealers = tuple(each for each in message.dealers if each != "member-05")
            return again(message, federation.keys[late], dealers=dealers, complaints=("member-05",))
        if sender == late and isinstance(message, Reveal):
            return again(message, federation.keys[late], runs=(*message.runs[:5], *message.runs[6:]))
        return honest(sender, message)

    federation.tamper = complaining
    federation.drop = dict.fromkeys(range(3), After.VOTE)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.disputes == ()
    assert outcome.survivors == federation.ids
    assert outcome.faults == ()
    assert named(verdict(federation)) == {(("member-05", late), "box-refused")}


def test_who_signs_two_receipts_is_named_also_when_it_is_late() -> None:
    federation, late = proposed(), LATE[0]
    told = receipt_of(federation, late)
    other = again(told, federation.keys[late], dealers=told.dealers[1:], complaints=told.dealers[:1])
    phase = federation._answer(federation.phase, late, told)
    federation.phase = federation._answer(phase, late, other)
    assert [fault.cause for _, fault in federation.faults] == [Cause.CONFLICT]
    federation.run_until()
    federation.finish()
    assert named(verdict(federation)) == {((late,), "conflict")}


def test_a_late_receipt_that_covers_other_uploads_names_the_coordinator_that_noted_it() -> None:
    federation = federation_of(Checking, silent_after=After.VOTE)
    federation.run_round()

    def edit(entries: list[bytes]) -> None:
        index = find(entries, Receipt, LATE[0])
        told = Receipt.from_bytes(entries[index])
        entries[index] = again(told, federation.keys[LATE[0]], uploads=bytes(32)).to_bytes()

    assert named(doctored(federation, edit)) == {(("coordinator",), "survivors-invalid")}


def test_no_vote_is_asked_for_while_a_certificate_cannot_be_had() -> None:
    federation = proposed()
    refusing, waiting, late = federation.ids[0], federation.ids[1], LATE[0]
    said = Refusal.make(
        federation.keys[refusing],
        context=federation.phase.attempt.context,
        member=refusing,
        cause="mondays",
    )
    short = federation.phase.receive(said, federation.now_s)
    assert short.waiting_for() == LATE
    assert short.request_for(waiting) is None
    voiding = of(Voiding, short.expire(federation.now_s))
    assert (voiding.fault.cause, voiding.spent) == (Cause.POLICY_REFUSED, frozenset())
    again_enough = short.receive(receipt_of(federation, late), federation.now_s)
    assert again_enough.waiting_for() == federation.ids[1:]
    assert isinstance(again_enough.request_for(waiting), Freeze)
    assert isinstance(again_enough.request_for(late), Freeze)


def test_refusals_end_the_attempt_once_those_who_may_still_come_are_too_few() -> None:
    federation = proposed()
    context = federation.phase.attempt.context
    phase: CoordinatorPhase = federation.phase
    for count, member in enumerate(federation.ids[:5], start=1):
        assert isinstance(phase, Freezing), count
        said = Refusal.make(federation.keys[member], context=context, member=member, cause="mondays")
        phase = phase.receive(said, federation.now_s)
    # twelve less five are fewer than eight
    assert isinstance(phase, Voiding)


def test_a_dealer_whose_boxes_fail_for_the_late_may_starve_the_sum_and_is_named_as_short() -> None:
    """Known to be weak (protocol §12): nobody can tell before the certificate, and nothing proves the dealer false."""
    federation = federation_of(Checking)
    honest, dealer = federation.tamper, federation.ids[0]

    def failing(sender: str, message: Message) -> Message | None:
        if sender == dealer and isinstance(message, Upload):
            boxes = list(message.boxes)
            for member in LATE:
                boxes[federation.ids.index(member)] = bytes(len(boxes[-1]))
            return reupload(federation, message, boxes=tuple(boxes))
        return honest(sender, message)

    federation.tamper, federation.drop = failing, {0: After.VOTE}
    ended = of(Failed, federation.run_round().phase)
    assert ended.fault.detail == (
        "7 of the decryptors that revealed hold shares of member-00's secrets, the threshold is 8"
    )
    assert ended.fault.parties == (dealer,)
    assert named(verdict(federation)) == {((dealer, late), "box-refused") for late in LATE}


def test_a_refusal_is_judged_by_its_senders_receipt_wherever_that_stands() -> None:
    federation = federation_of(Checking)
    honest, refusing = federation.tamper, federation.ids[3]

    def other_upload(sender: str, message: Message) -> Message | None:
        if sender == f"coordinator>{refusing}" and isinstance(message, Freeze):
            other = again(message.headers[0], federation.keys[federation.ids[0]], salt=b"R" * 32)
            return replace(message, headers=(other, *message.headers[1:]))
        return honest(sender, message)

    federation.tamper = other_upload
    federation.run_round()
    refused = {((refusing, "coordinator"), "survivors-invalid")}
    assert named(verdict(federation)) == refused

    def behind(entries: list[bytes]) -> None:
        receipt = entries.pop(find(entries, Receipt, refusing))
        entries.insert(
            find(entries, Freeze), entries.pop(find(entries, Receipt, LATE[0]))
        )  # t of them all the same
        entries.insert(find(entries, Refusal, refusing) + 1, receipt)

    assert named(doctored(federation, behind)) == refused
