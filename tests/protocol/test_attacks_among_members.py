"""Dealers and decryptors against each other: who is dropped, who is named, and that the sum stands."""

from collections.abc import Callable

import numpy as np

from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.coordinator import Recovered, Voided
from protocol.disputes import Dispute
from protocol.messages import (
    Message,
    Receipt,
    Reveal,
    Upload,
)
from protocol.shamir import PRIME
from protocol.simulator import After, Federation
from tests.protocol.forging import again, other_secrets


def test_a_dealer_cannot_frame_a_decryptor_after_a_clean_receipt(redeal: Callable[..., Upload]) -> None:
    """A bad box is a complaint before the freeze: then no share of the dealer is ever asked for."""
    federation = Federation(6)

    def tamper(sender: str, message: Message) -> Message:
        if sender == "member-3" and isinstance(message, Upload):
            return redeal(
                federation,
                message,
                lambda who, shares: bytes(36) + shares[36:] if who == "member-1" else shares,
                commit=False,
            )
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.disputes == (Dispute(Cause.BOX_REFUSED, "member-3", "member-1"),)
    assert outcome.survivors == tuple(m for m in federation.ids if m != "member-3")
    assert outcome.faults == ()


def complaining(federation: Federation, complaints: dict[str, tuple[str, ...]]) -> None:
    """These decryptors complain of true boxes."""

    def tamper(sender: str, message: Message) -> Message:
        if sender in complaints and isinstance(message, Receipt):
            of = complaints[sender]
            clean = tuple(dealer for dealer in message.dealers if dealer not in of)
            return again(message, federation.keys[sender], dealers=clean, complaints=of)
        return message

    federation.tamper = tamper


def test_a_false_complaint_costs_one_honest_member_at_most() -> None:
    federation = Federation(6)
    complaining(federation, {"member-1": ("member-0",)})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[1:]
    # and the dealer that was dropped from the sum still helped to open it
    assert outcome.phase.disputes == (Dispute(Cause.BOX_REFUSED, "member-0", "member-1"),)
    assert outcome.faults == ()


def test_false_complaints_of_several_cost_the_liar_alone() -> None:
    federation = Federation(9)
    complaining(
        federation, {"member-1": ("member-0", "member-4", "member-8"), "member-7": ("member-0", "member-2")}
    )
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert set(federation.ids) - set(outcome.survivors) == {"member-1", "member-7"}
    # what they hold after all they may not reveal: a receipt binds
    assert {(fault.cause, fault.parties) for _, fault in outcome.faults} == {
        (Cause.REVEAL_MISSHAPEN, ("member-1",)),
        (Cause.REVEAL_MISSHAPEN, ("member-7",)),
    }
    assert outcome.total is not None
    expected = np.sum([federation.vectors_now[m] for m in outcome.survivors], axis=0)
    assert np.array_equal(outcome.total, expected)


def test_where_nobody_can_be_spared_a_complaint_voids_and_names_both() -> None:
    federation = Federation(4)
    complaining(federation, {"member-1": ("member-0",)})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.parties) == (Cause.BOX_REFUSED, ("member-0", "member-1"))


def test_a_decryptor_that_sends_a_bad_share_after_a_clean_receipt_is_named_and_the_sum_stands() -> None:
    federation = Federation(5)

    def tamper(sender: str, message: Message) -> Message:
        if sender == "member-1" and isinstance(message, Reveal):
            run = message.runs[0]
            word = (int.from_bytes(run[:4], "little") + 1) % PRIME
            false = SecretBytes(word.to_bytes(4, "little") + run[4:])
            return again(message, federation.keys["member-1"], runs=(false, *message.runs[1:]))
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    named = [fault for who, fault in outcome.faults if who == "coordinator"]
    assert [(fault.cause, fault.parties) for fault in named] == [(Cause.SHARE_INVALID, ("member-1",))]


def test_a_member_that_lies_about_edges_is_dropped_alone(resign: Callable[..., Upload]) -> None:
    federation = Federation(8)

    def tamper(sender: str, message: Message) -> Message:
        if sender == "member-2" and isinstance(message, Upload):
            commitments = (*message.secret_commitments[:6], b"\x66" * 16, b"\x66" * 16)
            return resign(federation, message, secret_commitments=commitments)
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.disputes == (
        Dispute(Cause.EDGE_DISAGREEMENT, "member-2", "member-6"),
        Dispute(Cause.EDGE_DISAGREEMENT, "member-2", "member-7"),
    )
    assert outcome.survivors == tuple(m for m in federation.ids if m != "member-2")


def test_a_dealer_of_one_bad_box_takes_no_loss_from_the_sum(redeal: Callable[..., Upload]) -> None:
    """It has eleven clean receipts of twelve, and is dropped all the same: with it, four losses would leave it seven holders."""
    federation = Federation(12, drop=dict.fromkeys(range(8, 12), After.VOTE))

    def tamper(sender: str, message: Message) -> Message:
        if sender != "member-00" or not isinstance(message, Upload):
            return message
        false = other_secrets(federation.phase.attempt)
        return redeal(
            federation, message, lambda who, own: false(who, own) if who == "member-01" else own, commit=False
        )

    federation.tamper = tamper
    outcome = federation.run_round(terms=federation.terms(8))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[1:]
