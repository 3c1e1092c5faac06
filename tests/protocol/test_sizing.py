from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.estimate import estimate
from veilsum.protocol.quorum import Quorum
from veilsum.protocol.sizing import Assumptions, Committee, Plan, Sizes, in_bytes, size

BEACON = bytes(range(32))
USUAL = Assumptions()


def ids(count: int) -> tuple[str, ...]:
    return tuple(f"m-{i:05}" for i in range(count))


def choose(
    members: int,
    nominated: int | None,
    assumptions: Assumptions,
    elements: int,
    ring_bits: int,
    **numbers: int,
) -> Plan:
    sizes = size(members, nominated, assumptions, **numbers)
    cost = estimate(sizes.quorum, sizes.degree, assumptions.dropped(members), elements, ring_bits)
    return Plan(**vars(sizes), cost=cost)


def graph_of(sizes: Sizes) -> tuple[int, int]:
    return sizes.degree, sizes.window_dropped_max


# --- Who decrypts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [3, 12, 50, 200])
def test_up_to_200_members_everyone_decrypts(members: int) -> None:
    sizes = size(members, None, USUAL)
    assert sizes == Sizes(Quorum.derive(members, members), Committee.EVERYONE, members - 1, 0)
    assert sizes.decryptors(ids(members), (), BEACON) == ids(members)


@pytest.mark.parametrize(
    ("nominated", "a_d", "threshold"),
    [(7, 2, 5), (10, 3, 7), (15, 4, 10), (21, 6, 14), (31, 10, 21), (50, 16, 34)],
)
def test_nominees_do_where_the_roster_names_some(nominated: int, a_d: int, threshold: int) -> None:
    for members in (100, 200):
        sizes = size(members, nominated, USUAL)
        assert sizes.committee is Committee.NOMINATED
        assert sizes.quorum == Quorum.derive(members, nominated, decryptor_colluders=a_d)
    assert sizes.quorum.threshold == threshold
    nominees = ids(200)[40 : 40 + nominated]
    assert sizes.decryptors(ids(200), frozenset(nominees), BEACON) == nominees


def test_nominees_that_stay_away_take_no_colluder_with_them() -> None:
    sizes = size(100, 31, USUAL, present=25)
    assert (sizes.quorum.decryptors, sizes.quorum.decryptor_colluders, sizes.quorum.threshold) == (25, 10, 18)
    nominees = (*ids(100)[:25], "x-1", "x-2", "x-3", "x-4", "x-5", "x-6")
    assert sizes.decryptors(ids(100), nominees, BEACON) == ids(100)[:25]


@pytest.mark.parametrize("nominated", [1, 2, 3])
def test_nominees_of_whom_none_may_collude_do_only_where_no_member_may(nominated: int) -> None:
    with pytest.raises(
        PeerFault, match=rf"^cohort-too-small: of {nominated} nominated .* nominate 4 or more, 10 "
    ):
        size(12, nominated, USUAL)
    assert size(12, 4, USUAL).quorum.decryptor_colluders == 1
    if nominated > 1:
        assert size(12, nominated, USUAL, colluders=0).quorum.decryptor_colluders == 0


@pytest.mark.parametrize(("came", "threshold"), [(10, 11), (1, 2), (0, 1)])
def test_nominees_too_few_for_their_threshold_are_refused(came: int, threshold: int) -> None:
    with pytest.raises(
        PeerFault, match=rf"^cohort-too-small: with n=100 .* L={came} dec.* t={threshold} dec"
    ):
        size(100, 31, USUAL, present=came)


# --- Who shares masks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (200, (199, 0)),
        (201, (200, 0)),
        (500, (499, 0)),
        (1_000, (222, 32)),
        (1_001, (218, 31)),
        (10_000, (272, 40)),
    ],
)
def test_the_graph_is_sparse_where_that_is_three_times_cheaper(
    members: int, expected: tuple[int, int]
) -> None:
    assert graph_of(size(members, None, USUAL)) == expected


# --- What it is sized against ------------------------------------------------------------------------------


def test_cards_left_out_leave_the_colluders() -> None:
    """A roster of 1,200 of whom 300 may collude, and 1,000 come."""
    few, all_came = size(1_000, None, USUAL), size(1_000, None, USUAL, colluders=300)
    assert all_came.quorum.colluders == 300
    assert all_came.quorum.threshold > few.quorum.threshold
    assert all_came.degree > few.degree
    assert all_came.quorum.survivors_min == 651


@settings(deadline=None, max_examples=80)
@given(
    n=st.integers(51, 3_000),
    gamma=st.integers(0, 400),
    delta=st.integers(0, 250),
    sigma=st.integers(1, 60),
    more=st.integers(0, 40),
    nominated=st.none() | st.integers(4, 50),
)
def test_what_every_size_promises(
    n: int, gamma: int, delta: int, sigma: int, more: int, nominated: int | None
) -> None:
    assumptions = Assumptions(gamma, delta, sigma_bits=sigma)
    try:
        surer = size(n, nominated, replace(assumptions, sigma_bits=sigma + more))
    except PeerFault:
        with pytest.raises(PeerFault, match=r"would decrypt, at most 1000 can: nominate some in the roster"):
            size(n, None, replace(assumptions, sigma_bits=sigma + more))
        return
    sizes = size(n, nominated, assumptions)
    q = sizes.quorum
    assert 2 * q.threshold > q.decryptors + q.decryptor_colluders
    assert n - assumptions.dropped(n) >= q.survivors_min or q.survivors_min == q.colluders + q.honest_min
    if nominated is not None:
        # colluders who answer nothing can't stall the rest
        assert q.decryptors - q.decryptor_colluders >= q.threshold
    assert sizes.complete or (sizes.degree % 2 == 0 and 2 <= sizes.degree < n - 1)
    assert 0 <= sizes.window_dropped_max < max(sizes.degree // 2, 1)
    assert surer.degree >= sizes.degree
    assert surer.quorum.decryptors >= q.decryptors


def test_a_committee_that_is_too_large_is_refused() -> None:
    with pytest.raises(
        PeerFault, match=r"1181 of n=10000 members would decrypt, at most 1000 can: nominate"
    ) as refused:
        size(10_000, None, Assumptions(330, 200))
    assert refused.value.cause is Cause.COHORT_TOO_SMALL


@pytest.mark.parametrize(("members", "colluders"), [(2, 0), (0, 0), (60, 58), (2_000, 1_998), (2_000, 3_000)])
def test_too_few_for_a_sum_are_refused(members: int, colluders: int) -> None:
    with pytest.raises(PeerFault, match=rf"^cohort-too-small: .*{members} members") as refused:
        size(members, None, USUAL, colluders=colluders)
    assert refused.value.cause is Cause.COHORT_TOO_SMALL


@pytest.mark.parametrize(
    ("nominated", "options"),
    [
        (0, {}),
        (-1, {}),
        (61, {}),
        (7, {"present": 8}),
        (7, {"present": -1}),
        (80, {"present": 61}),
        (None, {"present": 7}),
        (None, {"colluders": -1}),
        (None, {"honest_min": 2}),
    ],
)
def test_our_own_nonsense_is_a_misuse(nominated: int | None, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        size(60, nominated, USUAL, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": -1},
        {"delta": -1},
        {"gamma": 800, "delta": 100},
        {"gamma": 1000, "delta": 0},
        {"sigma_bits": 0},
        {"eta_bits": 0},
        {"committee_eta_bits": 0},
        {"grinding_bits": -1},
    ],
)
def test_assumptions_that_nothing_holds_against_are_a_misuse(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse, match=r"no cohort holds against|a chance is held to a bit"):
        Assumptions(**wrong)


def test_members_other_than_those_sized_for_are_a_misuse() -> None:
    sizes = size(60, 7, USUAL)
    for count in (59, 61):
        with pytest.raises(Misuse, match=rf"^{count} members, sized for 60$"):
            sizes.decryptors(ids(count), ids(7), BEACON)
    with pytest.raises(Misuse, match=r"^6 decryptors, sized for 7$"):
        sizes.decryptors(ids(60), ids(6), BEACON)


# --- The plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [12, 200, 1_000])
def test_no_size_depends_on_the_vector(members: int) -> None:
    plans = [choose(members, None, USUAL, elements, bits) for elements, bits in ((1, 8), (10**9, 64))]
    for plan in plans:
        assert Sizes(plan.quorum, plan.committee, plan.degree, plan.window_dropped_max) == size(
            members, None, USUAL
        )
    assert plans[0].cost.upload_bytes < plans[1].cost.upload_bytes
    assert {plan.cost.lost for plan in plans} == {members // 10}


@pytest.mark.parametrize(
    ("size", "shown"), [(12, "12 bytes"), (4_321, "4.3 kB"), (5_700_000, "5.7 MB"), (7_980_000_000, "8.0 GB")]
)
def test_no_size_is_shown_as_zero(size: int, shown: str) -> None:
    assert in_bytes(size) == shown


def test_a_plan_in_words_has_its_figures() -> None:
    sentence = choose(12, None, USUAL, 947_940, 48).sentence
    for figure in ("12 members", "3 of them", "any 8", "0.013 s", "5.7 MB", "68.3 MB", "0.054 s", "1 drop"):
        assert figure in sentence
    sentence = choose(1_000, None, USUAL, 947_940, 48).sentence
    for figure in (
        "1,000",
        "222",
        "any 111",
        "32 may",
        "197 drawn",
        "108 may",
        "any 153",
        "626",
        "0.46 s",
        "100 drop",
    ):
        assert figure in sentence


def test_a_sum_is_sized_for_the_whole_roster() -> None:
    sizes = size(8, None, USUAL, colluders=2, roster=10)
    assert (sizes.quorum.survivors_min, sizes.quorum.threshold) == (7, 6)
    with pytest.raises(PeerFault, match=r"n=5 members, L=5 decryptors and a=2 .* n_min=7") as refused:
        size(5, None, USUAL, colluders=2, roster=11)
    assert refused.value.cause is Cause.COHORT_TOO_SMALL
    assert choose(8, None, USUAL, 100, 32, colluders=2, roster=10).quorum == sizes.quorum
