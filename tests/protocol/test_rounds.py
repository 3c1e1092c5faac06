"""Whole rounds in the simulator: who may vanish when, what the sum is, and how an attempt ends without one."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.protocol.transcripts import doctored, find, kinds, named, verdict
from tests.support.forging import again, changing, in_turn, reupload, swallowing
from tests.support.simulator import After, Federation, Outcome, Vector, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    ClosedByAdmin,
    CoordinatorPhase,
    Failed,
    Freezing,
    Recovered,
    VoidedByErasure,
)
from veilsum.protocol.messages import Certificate, Deliveries, Message, Receipt, Upload

BEFORE_UPLOAD = (After.CARD, After.OPENING, After.ANNOUNCEMENT)


def exact(vectors: dict[str, Vector], survivors: tuple[str, ...], bits: int) -> Vector:
    """Return the sum over the survivors, reduced to the ring's centred range."""
    total = sum(vectors[member].astype(object) for member in survivors)
    half = 1 << (bits - 1)
    return np.array([(int(value) + half) % (1 << bits) - half for value in np.atleast_1d(total)], np.int64)


def assert_sum(federation: Federation, outcome: Outcome, bits: int = 32) -> None:
    """Check that the sum is exact, over the certified survivors without dealers that were proved false."""
    assert isinstance(outcome.phase, Recovered)
    assert outcome.fault is None
    assert outcome.total is not None
    vectors, phase = dict(federation.vectors_now), outcome.phase
    assert phase.summed_members == tuple(m for m in outcome.survivors if m not in phase.evicted)
    assert np.array_equal(outcome.total, exact(vectors, phase.summed_members, bits))


# Who may vanish


@pytest.mark.parametrize("after", list(After))
@pytest.mark.parametrize(("members", "restart"), [(3, True), (4, False), (5, True), (6, False), (8, True)])
def test_as_many_as_the_table_says_may_vanish_at_any_step(
    members: int,
    after: After,
    restart: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    federation = Federation(members, restart=restart, seed=int(after))
    stated = federation.manifest
    decryptors_may_miss = members - stated.threshold
    members_may_miss = members - stated.survivors_min
    missing = min(members_may_miss, decryptors_may_miss) if after in BEFORE_UPLOAD else decryptors_may_miss
    federation.drop = {members - 1 - i: after for i in range(missing)}
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    gone = missing if after in BEFORE_UPLOAD else 0
    assert outcome.survivors == federation.ids[: members - gone]


@pytest.mark.parametrize("after", [After.UPLOAD, After.RECEIPT, After.VOTE])
@pytest.mark.parametrize("members", [3, 5, 6, 8])
def test_one_more_decryptor_lost_after_the_uploads_and_there_is_no_sum(members: int, after: After) -> None:
    federation = Federation(members)
    missing = members - federation.manifest.threshold + 1
    federation.drop = dict.fromkeys(range(missing), after)
    outcome = federation.run_round()
    revealed = members - missing if after is After.VOTE else 0
    needed = outcome.phase.attempt.quorum.erasures_min
    if members - revealed < needed:  # who revealed cannot say that it did not
        assert isinstance(outcome.phase, Failed)
    else:
        erased = members - missing - revealed >= needed
        assert isinstance(outcome.phase, VoidedByErasure if erased else ClosedByAdmin)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.QUORUM_LOST
    assert set(outcome.fault.parties) == set(federation.ids[:missing])


# Shapes


def test_nominated_decryptors_need_not_upload() -> None:
    federation = Federation(7, decryptors=(0, 1, 2, 3), tamper=swallowing(Upload, "member-0", "member-2"))
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert "member-0" not in outcome.survivors


def test_a_sparse_cohort_sums_without_those_who_are_lost(sparse: Callable[..., Federation]) -> None:
    federation = sparse(restart=True)
    graph, decryptors = federation.manifest.graph, federation.manifest.decryptors
    lost, *_, quiet = (member for member in graph.ring if member not in decryptors)
    federation.drop = {federation.ids.index(lost): After.CARD, federation.ids.index(quiet): After.UPLOAD}
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert set(outcome.survivors) == {*federation.ids} - {lost}
    assert isinstance(outcome.phase, Recovered)
    # the lost member's four neighbours only
    assert set(outcome.phase.edge_seeds) == {(member, lost) for member in graph.neighbours_of(lost)}


def repeat(federation: Federation, context: bytes) -> Outcome:
    """Form a cohort that sums the attempt's records again, and run it."""
    federation.tell_ending()
    federation.enrol(next(link.period for link in federation.links if link.context == context), context)
    return federation.run_round()


def test_only_a_sum_over_fresh_records_is_repeated() -> None:
    federation = Federation(4)
    first = federation.run_round().phase.attempt.context
    second = repeat(federation, first).phase.attempt.context
    outcome = repeat(federation, second)
    assert outcome.total is None
    assert {who for who, fault in outcome.faults if fault.cause is Cause.REPEAT_MISMATCH} == {*federation.ids}
    assert federation.spool == {}


# Decryptors whose boxes reach them after the proposal (wire: Survivors): they sign and reveal like the others


LATE = ("member-08", "member-09", "member-10", "member-11")
"""Late members of a cohort of twelve, in which eight must sign and three may collude."""


def federation_of(*away_in: type[CoordinatorPhase], silent_after: After = After.REVEAL) -> Federation:
    """Make a federation in which late members receive nothing in these phases, and three prompt members vanish afterwards."""
    federation = Federation(12, drop=dict.fromkeys(range(3), silent_after))

    def tamper(sender: str, message: Message) -> Message | None:
        away = sender.removeprefix("coordinator>") in LATE and isinstance(federation.phase, away_in)
        return None if away and isinstance(message, Deliveries | Certificate) else message

    federation.tamper = tamper
    return federation


@pytest.mark.parametrize(
    ("away_in", "silent_after"), [((Checking,), After.RECEIPT), ((Checking, Freezing), After.VOTE)]
)
def test_as_many_as_collude_fall_silent_and_the_late_carry_the_sum(
    away_in: tuple[type[CoordinatorPhase], ...], silent_after: After
) -> None:
    federation = federation_of(*away_in, silent_after=silent_after)
    vectors = federation.vectors()
    outcome = federation.run_round(vectors)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, sum(vectors.values()))
    # as an auditor sees it: receipts after the proposal, and no findings
    order = kinds(federation.transcript)
    assert order.index("Freeze") < max(index for index, kind in enumerate(order) if kind == "Receipt")
    judged = verdict(federation)
    assert judged.findings == ()
    assert judged.counts_upload(LATE[0])


def test_a_late_receipt_that_covers_other_uploads_names_the_coordinator_that_noted_it() -> None:
    federation = federation_of(Checking, silent_after=After.VOTE)
    federation.run_round()

    def edit(entries: list[bytes]) -> None:
        index = find(entries, Receipt, LATE[0])
        told = Receipt.from_bytes(entries[index])
        entries[index] = again(told, federation.keys[LATE[0]], uploads=bytes(32)).to_bytes()

    assert named(doctored(federation, edit)) == {(("coordinator",), "survivors-invalid")}


def test_a_dealer_whose_boxes_fail_for_the_late_may_starve_the_sum_and_is_named_as_short() -> None:
    """A known weakness (analysis: Proofs): this can't be detected before the certificate, and nothing proves the dealer false."""
    federation = federation_of(Checking)
    dealer = federation.ids[0]

    def fail(upload: Upload) -> Upload:
        boxes = list(upload.boxes)
        for member in LATE:
            boxes[federation.ids.index(member)] = bytes(len(boxes[-1]))
        return reupload(federation, upload, boxes=tuple(boxes))

    federation.tamper = in_turn(changing(Upload, fail, dealer), federation.tamper)
    federation.drop = {0: After.VOTE}
    ended = of(Failed, federation.run_round().phase)
    assert re.match(rf"7 .*{dealer}.*\b8$", ended.fault.detail)
    assert ended.fault.parties == (dealer,)
    assert named(verdict(federation)) == {((dealer, late), "box-refused") for late in LATE}
