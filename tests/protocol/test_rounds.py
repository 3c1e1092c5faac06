"""Whole rounds in the simulator: who may vanish when, what the sum is, and how an attempt ends without one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.questions import GRADIENTS
from tests.support.forging import false_dealers, other_secrets, swallowing
from tests.support.simulator import After, Federation, Outcome, Vector, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import ClosedByAdmin, Failed, Recovered, Voided, VoidedByErasure
from veilsum.protocol.member import Closed
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Upload

BEFORE_UPLOAD = (After.CARD, After.OPENING, After.ANNOUNCEMENT)


def exact(vectors: dict[str, Vector], survivors: tuple[str, ...], bits: int) -> Vector:
    """The sum over the survivors, reduced to the centred range of the ring."""
    total = sum(vectors[member].astype(object) for member in survivors)
    half = 1 << (bits - 1)
    return np.array([(int(value) + half) % (1 << bits) - half for value in np.atleast_1d(total)], np.int64)


def assert_sum(federation: Federation, outcome: Outcome, bits: int = 32) -> None:
    """The sum is exact, over the certified survivors less the dealers that proved false."""
    assert isinstance(outcome.phase, Recovered)
    assert outcome.fault is None
    assert outcome.total is not None
    vectors, phase = dict(federation.vectors_now), outcome.phase
    assert phase.summed == tuple(m for m in outcome.survivors if m not in phase.evicted)
    assert np.array_equal(outcome.total, exact(vectors, phase.summed, bits))


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


@pytest.mark.parametrize("after", BEFORE_UPLOAD)
@pytest.mark.parametrize("members", [5, 6, 8, 12])
def test_one_more_before_its_upload_and_the_attempt_ends_cleanly(members: int, after: After) -> None:
    federation = Federation(members)
    missing = members - federation.manifest.survivors_min + 1
    federation.drop = dict.fromkeys(range(missing), after)
    outcome = federation.run_round()
    # those who vanished sign no VOID either; the rest report that they revealed nothing, if they are enough
    erased = members - missing >= outcome.phase.attempt.quorum.erasures_min
    assert isinstance(outcome.phase, VoidedByErasure if erased else ClosedByAdmin)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.SURVIVORS_TOO_FEW
    assert outcome.fault.parties == federation.ids[:missing]
    assert outcome.total is None


@pytest.mark.parametrize("members", [3, 4, 5, 8])
def test_one_upload_too_few_with_everyone_alive_is_void(members: int) -> None:
    federation = Federation(members)
    missing = members - federation.manifest.survivors_min + 1
    federation.tamper = swallowing(Upload, *federation.ids[:missing])
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.SURVIVORS_TOO_FEW
    assert outcome.survivors == ()


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


# Rounds after rounds


def test_a_retry_after_void_sums_under_another_context_and_the_same_keys() -> None:
    federation = Federation(5, tamper=swallowing(Upload, "member-0", "member-1"))
    first = federation.run_round()
    assert isinstance(first.phase, Voided)
    spooled = dict(federation.spool)
    federation.tamper = lambda _sender, message: message
    second = federation.run_round()
    assert_sum(federation, second)
    assert second.survivors == federation.ids
    assert second.phase.attempt.opening.place == (0, 1)
    assert second.phase.attempt.context != first.phase.attempt.context
    assert not set(spooled.values()) & set(federation.spool.values())


def test_eight_voids_end_a_round_and_the_next_one_sums() -> None:
    federation = Federation(4, tamper=swallowing(Upload, "member-0"))
    places = []
    for _ in range(8):
        outcome = federation.run_round()
        assert isinstance(outcome.phase, Voided)
        places.append(outcome.phase.attempt.opening.place)
    assert places == [(0, attempt) for attempt in range(8)]
    federation.tamper = lambda _sender, message: message
    outcome = federation.run_round()
    assert outcome.phase.attempt.opening.place == (1, 0)
    assert_sum(federation, outcome)
    assert outcome.faults == ()


@pytest.mark.parametrize("restart", [False, True])
def test_consecutive_rounds_sum_with_keys_that_move_on(restart: bool) -> None:  # noqa: FBT001 - pytest's own
    federation = Federation(4, restart=restart, question=GRADIENTS)
    masks: list[bytes] = []
    for sequence in range(3):
        outcome = federation.run_round()
        assert_sum(federation, outcome, 48)
        assert outcome.phase.attempt.opening.place == (sequence, 0)
        assert outcome.faults == ()
        phase = of(Closed, federation.phases["member-0"])
        masks += [pair.key for pair in phase.ready.masks]
    assert len(set(masks)) == 9


def test_a_member_that_missed_a_round_is_in_the_next() -> None:
    federation = Federation(5, drop={2: After.UPLOAD})
    assert_sum(federation, federation.run_round())
    assert isinstance(federation.phases["member-2"], Attempting)
    federation.drop = {4: After.CARD}
    assert_sum(federation, federation.run_round())
    federation.drop = {}
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert outcome.survivors == federation.ids
    assert outcome.faults == ()


@pytest.mark.parametrize("new_cohort", [False, True])
@pytest.mark.parametrize(("after", "ending"), [(After.VOTE, Failed), (After.RECEIPT, VoidedByErasure)])
def test_an_attempt_without_a_sum_is_followed_by_the_next_round(
    after: After,
    ending: type,
    new_cohort: bool,  # noqa: FBT001 - pytest's own
) -> None:
    federation = Federation(5, drop={0: after, 1: after})
    assert isinstance(federation.run_round().phase, ending)
    assert len(federation.links) == 1
    federation.drop = {}
    if new_cohort:
        # who vanished before it heard the end must be shown that first
        for member in federation.ids[:2]:
            assert federation.ending is not None
            federation._tell(member, federation.ending)
        federation.enrol("other-1")
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert outcome.survivors == federation.ids
    assert outcome.faults == ()


# Shapes


@pytest.mark.parametrize("nominated", [(0, 1, 3, 4), (0, 2, 4, 5, 6)])
def test_nominated_decryptors_open_for_everyone(nominated: tuple[int, ...]) -> None:
    federation = Federation(7, decryptors=nominated)
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert outcome.survivors == federation.ids


def test_nominated_decryptors_need_not_upload() -> None:
    federation = Federation(7, decryptors=(0, 1, 2, 3), tamper=swallowing(Upload, "member-0", "member-2"))
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert "member-0" not in outcome.survivors


@pytest.mark.parametrize("chunk_elements", [8, 16, 96, 104])
def test_every_chunk_size_gives_the_same_sum(monkeypatch: pytest.MonkeyPatch, chunk_elements: int) -> None:
    monkeypatch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", chunk_elements)
    federation = Federation(3)
    assert_sum(federation, federation.run_round())


@pytest.mark.parametrize("restart", [False, True])
def test_a_sparse_cohort_sums_without_those_who_are_lost(
    sparse: Callable[..., Federation],
    restart: bool,  # noqa: FBT001 - pytest's own
) -> None:
    ring = sparse().manifest.graph.ring
    federation = sparse(restart=restart)
    federation.drop = {federation.ids.index(ring[0]): After.CARD, federation.ids.index(ring[5]): After.UPLOAD}
    outcome = federation.run_round()
    assert_sum(federation, outcome)
    assert set(outcome.survivors) == set(ring) - {ring[0]}
    assert isinstance(outcome.phase, Recovered)
    # the lost member's four neighbours, and nobody else
    assert set(outcome.phase.edge_seeds) == {(m, ring[0]) for m in (ring[1], ring[2], ring[-1], ring[-2])}
    assert outcome.phase.attempt.decryptors == tuple(federation.ids[index] for index in (0, 3, 6, 9))


# Any pattern at all


@settings(max_examples=15, deadline=None)
@given(data=st.data(), members=st.integers(3, 9), seed=st.integers(0, 2**32))
def test_any_round_gives_the_exact_sum_or_ends_with_a_cause(
    data: st.DataObject, members: int, seed: int
) -> None:
    drop: dict[int, Any] = data.draw(st.dictionaries(st.integers(0, members - 1), st.sampled_from(After)))
    bits = data.draw(st.sampled_from([32, 48]))
    federation = Federation(
        members, drop=drop, seed=seed, restart=data.draw(st.booleans()), question={"ring_bits": bits}
    )
    half = 1 << (bits - 1)
    rng = np.random.default_rng(seed)
    vectors = {m: rng.integers(-half, half - 1, 99, dtype=np.int64, endpoint=True) for m in federation.ids}
    liars = data.draw(st.dictionaries(st.sampled_from(federation.ids), st.just(other_secrets), max_size=2))
    false_dealers(federation, liars)
    for number in range(1, 3):
        if number == 2 and federation.next_step() is None:
            break  # members that vanished before their card make no other cohort
        outcome = federation.run_round(vectors)
        if isinstance(outcome.phase, Recovered):
            assert_sum(federation, outcome, bits)
            assert len(outcome.survivors) >= federation.manifest.survivors_min
        else:
            assert isinstance(outcome.phase, (Voided, VoidedByErasure, Failed, ClosedByAdmin))
            assert isinstance(outcome.fault.cause if outcome.fault else None, Cause)
            assert outcome.total is None
        assert len(federation.links) == number
