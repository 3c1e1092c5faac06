"""Whole attempts in the simulator: who may vanish when, what the sum is, and what hostile parties achieve."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator import Freezing, Lost, Recovered, Voided
from protocol.helpers.helper import Standing
from protocol.helpers.messages import (
    ClientSet,
    HelperCard,
    HelperCertificate,
    HelperFreeze,
    HelperLost,
    HelperOpening,
    HelperReceipt,
    HelperSums,
    HelperUpload,
    HelperVote,
)
from protocol.helpers.simulator import ClientStop, HelperFederation, HelperOutcome, HelperStop, standing_of
from protocol.messages.base import Message


def assert_sum(federation: HelperFederation, outcome: HelperOutcome, bits: int = 32) -> None:
    assert isinstance(outcome.phase, Recovered)
    assert outcome.fault is None
    assert outcome.total is not None
    size = outcome.total.size
    exact = sum(
        federation.vector(federation.ids.index(client), size).astype(object) for client in outcome.survivors
    )
    half = 1 << (bits - 1)
    assert outcome.total.tolist() == [(value + half) % (1 << bits) - half for value in np.atleast_1d(exact)]


@pytest.mark.parametrize("helper", range(4))
@pytest.mark.parametrize("stop", list(HelperStop))
def test_one_helper_may_vanish_at_any_step_and_comes_back(helper: int, stop: HelperStop) -> None:
    federation = HelperFederation(6, helper_drop={helper: stop}, restart=True, seed=helper)
    assert_sum(federation, federation.run(federation.terms(40)))
    assert_sum(federation, federation.run(federation.terms(40)))
    federation.helper_drop = {(helper + 1) % 4: stop}
    outcome = federation.run(federation.terms(40))
    assert_sum(federation, outcome)
    assert outcome.faults == ()
    chains = {standing_of(phase).chain for phase in federation.phases.values()}
    missing = stop < HelperStop.SUMS
    assert len(chains) == (2 if missing else 1)


@given(data=st.data(), clients=st.integers(6, 16), bits=st.sampled_from([8, 20, 32, 48, 64]))
@settings(max_examples=25, deadline=None)
def test_the_sum_is_exact_over_whoever_is_left(data: st.DataObject, clients: int, bits: int) -> None:
    may_miss = clients - (clients // 4 + 3)
    dropped = data.draw(st.lists(st.integers(0, clients - 1), max_size=may_miss, unique=True))
    stops = data.draw(st.lists(st.sampled_from(ClientStop), min_size=may_miss, max_size=may_miss))
    helper = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(HelperStop))
    federation = HelperFederation(
        clients,
        drop=dict(zip(dropped, stops, strict=False)),
        helper_drop=dict([helper]),
        seed=data.draw(st.integers(0, 1000)),
    )
    small = federation.vector
    federation.vector = lambda index, elements: small(index, elements) % 128  # type: ignore[method-assign]
    elements = data.draw(st.integers(1, 70))
    outcome = federation.run(federation.terms(elements, ring_bits=bits, chunk_elements=24))
    assert_sum(federation, outcome, bits)
    assert set(outcome.survivors) == set(federation.ids) - {federation.ids[index] for index in dropped}


def test_fewer_than_n_min_end_in_void_and_the_next_attempt_goes_on() -> None:
    federation = HelperFederation(8, drop=dict.fromkeys(range(4), ClientStop.ANNOUNCEMENT))
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Voided)
    assert outcome.phase.fault.cause == Cause.SURVIVORS_TOO_FEW
    federation.drop = {}
    assert_sum(federation, federation.run(federation.terms(100)))
    assert [ended.reason for ended in federation.history] == ["survivors-too-few", "none"]


def test_a_helper_that_missed_the_opening_is_told_late_and_helps_to_end(
    federation: HelperFederation,
) -> None:
    def hide(sender: str, message: Message) -> Message | None:
        return None if sender == "coordinator>helper-0" and isinstance(message, HelperOpening) else message

    federation.tamper = hide
    outcome = federation.run(federation.terms(100))
    assert_sum(federation, outcome)
    assert outcome.phase.closing.votes[0].member == "helper-0"  # type: ignore[attr-defined]  # Recovered


def test_a_card_that_is_lost_is_a_helper_less(federation: HelperFederation) -> None:
    federation.tamper = lambda sender, message: (
        None if sender == "helper-2" and isinstance(message, HelperCard) else message
    )
    outcome = federation.run(federation.terms(100))
    assert_sum(federation, outcome)
    assert federation.attempt.present == ("helper-0", "helper-1", "helper-3")
    assert {len(standing_of(phase).history) for phase in federation.phases.values()} == {1}


def test_without_two_helpers_no_attempt_ends_until_one_is_back() -> None:
    drop = {0: HelperStop.RECEIPT, 1: HelperStop.RECEIPT}
    federation = HelperFederation(8, helper_drop=drop)
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Freezing)
    assert (outcome.total, outcome.fault) == (None, None)
    federation.helper_drop = {0: HelperStop.RECEIPT}
    federation.run_until()
    assert_sum(federation, federation.finish())


def test_an_attempt_without_a_certificate_is_closed_by_the_admin_and_its_sets_count() -> None:
    drop = {0: HelperStop.RECEIPT, 1: HelperStop.RECEIPT}
    federation = HelperFederation(12, helper_drop=drop)
    proposed = federation.run(federation.terms(100)).phase
    assert isinstance(proposed, Freezing)
    lost = HelperLost.make(
        federation.admin,
        context=federation.attempt.context,
        family="exact",
        floor=federation.attempt.manifest.floor,
        sets=(ClientSet(proposed.survivors),),
    )
    federation.phase = proposed.receive(lost, federation.now_s)
    federation.helper_drop = {}
    outcome = federation.finish()
    assert isinstance(outcome.phase, Lost)
    assert {len(standing_of(phase).opened()) for phase in federation.phases.values()} == {1}
    federation.drop = {3: ClientStop.OPENING}
    fewer = federation.run(federation.terms(100))
    assert isinstance(fewer.phase, Voided)
    assert fewer.fault is not None
    assert "ledger-refused" in fewer.fault.detail
    federation.drop = {}
    assert_sum(federation, federation.run(federation.terms(100)))


# Hostile clients, helpers and coordinators


def from_client(
    index: int, change: Callable[[Any], Message | None]
) -> Callable[[str, Message], Message | None]:
    return lambda sender, message: change(message) if sender == f"client-{index}" else message


def test_a_false_client_is_dropped_and_nobody_else(resign: Callable[..., Any]) -> None:
    for changes in (
        lambda upload: {"boxes": (bytes(112), *upload.boxes[1:])},
        lambda upload: {"commitments": (bytes(32), *upload.commitments[1:])},
        lambda _upload: {"sender_key": bytes(32)},
    ):
        federation = HelperFederation(8)
        federation.tamper = from_client(2, lambda m, f=federation, c=changes: resign(f, m, **c(m)))  # type: ignore[misc]
        outcome = federation.run(federation.terms(100))
        assert_sum(federation, outcome)
        assert outcome.survivors == tuple(client for client in federation.ids if client != "client-2")


def test_a_client_s_chunk_that_was_not_announced_is_not_admitted(federation: HelperFederation) -> None:
    def corrupt(message: HelperUpload) -> Message:
        federation.spool["client-2", 0] = bytes(len(federation.spool["client-2", 0]))
        return message

    federation.tamper = from_client(2, corrupt)
    outcome = federation.run(federation.terms(100))
    assert_sum(federation, outcome)
    assert len(outcome.survivors) == 7
    assert [(who, fault.cause) for who, fault in outcome.faults] == [("coordinator", Cause.CHUNK_MISMATCH)]


def test_a_swallowed_upload_is_missing(federation: HelperFederation) -> None:
    federation.tamper = from_client(2, lambda _message: None)
    outcome = federation.run(federation.terms(100))
    assert_sum(federation, outcome)
    assert len(outcome.survivors) == 7


def test_a_false_helper_can_drop_a_clients_and_no_more() -> None:
    for complaints, survivors in ((2, 6), (3, 8)):
        federation = HelperFederation(8)

        def complain(sender: str, message: Message, f: Any = federation, count: int = complaints) -> Message:
            if sender != "helper-1" or not isinstance(message, HelperReceipt):
                return message
            return HelperReceipt.make(
                f.keys["helper-1"],
                context=message.context,
                member="helper-1",
                dealers=message.dealers[count:],
                complaints=message.dealers[:count],
            )

        federation.tamper = complain
        outcome = federation.run(federation.terms(100))
        assert_sum(federation, outcome)
        assert len(outcome.survivors) == survivors


def lie(federation: HelperFederation, helper: str) -> Callable[[str, Message], Message]:
    def change(sender: str, message: Message) -> Message:
        if sender != helper or not isinstance(message, HelperSums):
            return message
        values = {"context": message.context, "member": helper, "outcome": message.outcome}
        digests = (message.digests[1], message.digests[0], message.digests[2])
        return HelperSums.make(federation.keys[helper], **values, digests=digests)

    return change


def test_a_false_sum_is_outvoted_and_its_helper_named(federation: HelperFederation) -> None:
    federation.tamper = lie(federation, "helper-1")
    outcome = federation.run(federation.terms(100))
    assert_sum(federation, outcome)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.outvoted == ("helper-1",)


def test_with_a_helper_missing_a_false_sum_ends_the_attempt(federation: HelperFederation) -> None:
    federation.tamper = lie(federation, "helper-1")
    federation.helper_drop = {3: HelperStop.VOTE}
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Lost)
    assert outcome.fault is not None
    assert outcome.fault.cause == Cause.HELPER_DISAGREEMENT
    assert "helper-1" in outcome.fault.parties
    federation.helper_drop = {}
    federation.tamper = lambda _sender, message: message
    assert_sum(federation, federation.run(federation.terms(100)))


def test_split_survivors_get_no_certificate(federation: HelperFederation) -> None:
    # the coordinator shows two helpers one set and two another: a certificate of either lacks a vote
    def split(sender: str, message: Message) -> Message:
        if sender in {"coordinator>helper-0", "coordinator>helper-1"} and isinstance(message, HelperFreeze):
            return replace(message, survivors=message.survivors[1:])
        return message

    federation.tamper = split
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Freezing)
    assert {fault.cause for _, fault in outcome.faults} == {Cause.ALREADY_VOTED}
    assert not any(isinstance(phase, Standing) for phase in federation.phases.values())


def test_a_certificate_of_two_honest_votes_and_one_forged_opens_nothing(
    federation: HelperFederation,
) -> None:
    federation.helper_drop = dict.fromkeys(range(4), HelperStop.VOTE)
    federation.begin(federation.terms(100))
    federation.collect()
    phase = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    federation._serve("helper-0")
    federation._serve("helper-1")
    assert isinstance(federation.phase, Freezing)
    votes = federation.phase.votes
    forged = HelperVote.make(
        federation.coordinator, context=federation.attempt.context, member="helper-2", outcome=phase.outcome
    )
    certificate = HelperCertificate(
        federation.attempt.context, "exact", 5, phase.survivors, "none", (*votes.values(), forged)
    )
    assert federation._tell("helper-3", certificate) == ()
    assert federation.faults[-1][1].cause == Cause.BAD_SIGNATURE


def test_a_certificate_does_not_serve_another_attempt(federation: HelperFederation) -> None:
    first = federation.run(federation.terms(100)).phase
    assert isinstance(first, Recovered)
    federation.begin(federation.terms(100))
    federation._tell("helper-0", first.certificate)
    assert federation.faults[-1][1].cause == Cause.WRONG_CONTEXT


def test_an_upload_does_not_serve_another_attempt(federation: HelperFederation) -> None:
    kept: dict[str, Message] = {}

    def replay(sender: str, message: Message) -> Message:
        return kept.setdefault(sender, message) if isinstance(message, HelperUpload) else message

    federation.tamper = replay
    assert_sum(federation, federation.run(federation.terms(100)))
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Voided)
    assert {fault.cause for _, fault in outcome.faults} == {Cause.WRONG_CONTEXT}


def test_three_rounds_that_would_expose_one_client_are_not_all_signed() -> None:
    # P ∪ {u}, Q and P ∪ Q give x_u away; no helper took part in all three, and each knows of all three
    federation = HelperFederation(13, colluders=3)
    halves = set(range(1, 7)), set(range(7, 13))
    absent = [{3: HelperStop.NOTHING}, {2: HelperStop.NOTHING}, {1: HelperStop.NOTHING}]
    wanted = [halves[0] | {0}, halves[1], halves[0] | halves[1]]
    ends = []
    for gone, members in zip(absent, wanted, strict=True):
        federation.helper_drop = gone
        federation.drop = dict.fromkeys(set(range(13)) - members, ClientStop.OPENING)
        outcome = federation.run(federation.terms(40))
        ends.append((type(outcome.phase), outcome.fault.detail if outcome.fault else ""))
    assert [end for end, _ in ends] == [Recovered, Recovered, Voided]
    assert "ledger-refused" in ends[2][1]


def test_a_helper_that_was_away_is_shown_everything_or_signs_nothing(federation: HelperFederation) -> None:
    federation.helper_drop = {0: HelperStop.NOTHING}
    assert_sum(federation, federation.run(federation.terms(100)))
    federation.helper_drop = {}
    federation.closings = ()  # the coordinator withholds the certificate
    with pytest.raises(PeerFault, match=r"^wrong-cohort: the card of helper-0 is for another attempt"):
        federation.begin(federation.terms(100))
