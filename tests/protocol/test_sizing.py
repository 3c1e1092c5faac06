from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.estimate import estimate
from veilsum.protocol.graph import draw_committee
from veilsum.protocol.hypergeometric import size_committee, size_graph
from veilsum.protocol.quorum import Quorum, colluding_nominees
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


def test_where_none_are_nominated_a_committee_is_drawn() -> None:
    sizes = size(1_000, None, USUAL)
    drawn = size_committee(1_000, 250, 100, 80, 30)
    assert sizes.committee is Committee.DRAWN
    assert drawn == (sizes.quorum.decryptors, sizes.quorum.decryptor_colluders) == (197, 108)
    assert sizes.quorum.threshold == 153
    assert sizes.decryptors(ids(1_000), (), BEACON) == draw_committee(BEACON, ids(1_000), 197)


def test_a_committee_of_all_is_everyone() -> None:
    sizes = size(60, None, Assumptions(450, 270))
    assert sizes == Sizes(Quorum.derive(60, 60, colluders=27), Committee.EVERYONE, 59, 0)
    assert sizes.decryptors(ids(60), (), BEACON) == ids(60)


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


@pytest.mark.parametrize("members", range(201, 1_001, 47))
def test_between_the_limits_the_factor_decides(members: int) -> None:
    sparse = size_graph(members, members // 4, members // 10, 80, 20)
    assert sparse is not None
    assert graph_of(size(members, 21, USUAL)) == (
        sparse if 3 * sparse[0] <= members - 1 else (members - 1, 0)
    )


def test_beyond_1000_members_any_sparse_graph_is_taken_and_without_one_the_complete() -> None:
    crowded = Assumptions(450, 270)
    assert size(1_000, 21, crowded).complete
    assert graph_of(size(1_001, 21, crowded)) == (906, 164)
    assert size(1_001, 21, Assumptions(800, 99)).complete


# --- What it is sized against ------------------------------------------------------------------------------


@given(n=st.integers(0, 100_000))
def test_by_default_a_quarter_colludes_as_in_every_quorum(n: int) -> None:
    assert USUAL.colluders(n) == n // 4
    assert USUAL.dropped(n) == n // 10


def test_cards_left_out_leave_the_colluders() -> None:
    """A roster of 1,200 of whom 300 may collude, and 1,000 come."""
    few, all_came = size(1_000, None, USUAL), size(1_000, None, USUAL, colluders=300)
    assert all_came.quorum.colluders == 300
    assert all_came.quorum.threshold > few.quorum.threshold
    assert all_came.degree > few.degree
    assert all_came.quorum.survivors_min == 651


def test_h_min_reaches_the_quorum() -> None:
    assert size(12, None, USUAL, honest_min=8).quorum.survivors_min == 11
    assert size(60, None, USUAL, honest_min=30).quorum.survivors_min == 45


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


def test_where_no_committee_will_do_everyone_decrypts() -> None:
    sizes = size(300, None, USUAL, colluders=240)
    assert sizes.committee is Committee.EVERYONE
    assert sizes.quorum == Quorum.derive(300, 300, colluders=240)


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


def test_a_few_nominees_have_no_colluder_among_them() -> None:
    assert [colluding_nominees(nominees, 25) for nominees in (1, 3, 4, 100)] == [0, 0, 1, 25]


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


def test_a_plan_says_what_it_is_in_a_sentence() -> None:
    plan = choose(12, None, USUAL, 947_940, 48)
    assert plan.sentence == (
        "Among 12 members (3 of them may collude) each shares a mask with every other; all hold shares, 8 of them open "
        "the sum of 8 members or more; a member computes for about 0.013 s and sends 5.7 MB, the coordinator stores "
        "68.3 MB and computes for 0.054 s with 1 lost."
    )
    assert choose(1_000, None, USUAL, 947_940, 48).sentence == (
        "Among 1,000 members (250 of them may collude) each shares a mask with 222 others, and of any 111 in a row 32 may "
        "drop out; 197 drawn (108 of them may collude), hold shares, 153 of them open the sum of 626 members or more; a member computes for about "
        "0.23 s (0.46 s if it holds shares) and sends 8.0 MB, the coordinator stores 8.0 GB and computes for 19 s with 100 lost."
    )


def test_what_the_plan_is_told_reaches_its_sizes() -> None:
    plan = choose(100, 31, USUAL, 1_000, 32, present=25, colluders=30, honest_min=40)
    assert plan.quorum == Quorum.derive(100, 25, colluders=30, decryptor_colluders=10, honest_min=40)


def test_a_sum_is_sized_for_the_whole_roster() -> None:
    sizes = size(8, None, USUAL, colluders=2, roster=10)
    assert (sizes.quorum.survivors_min, sizes.quorum.threshold) == (7, 6)
    with pytest.raises(PeerFault, match=r"n=5 members, L=5 decryptors and a=2 .* n_min=7") as refused:
        size(5, None, USUAL, colluders=2, roster=11)
    assert refused.value.cause is Cause.COHORT_TOO_SMALL
    assert choose(8, None, USUAL, 100, 32, colluders=2, roster=10).quorum == sizes.quorum
