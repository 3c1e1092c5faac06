from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.sizing import Sizes, count_dropouts, size_cohort

BEACON = bytes(range(32))


def ids(count: int) -> tuple[str, ...]:
    return tuple(f"m-{i:05}" for i in range(count))


def sized(members: int, nominated: int | None = None, **numbers: int) -> Sizes:
    """Return the sizes of a cohort of a whole roster, a quarter of which may collude."""
    return size_cohort(members, nominated, **{"roster": members, "colluders": members // 4, **numbers})


# --- What it is sized against ------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(
    n=st.integers(51, 3_000),
    colluding=st.integers(0, 400),
    loss=st.integers(0, 250),
    nominated=st.none() | st.integers(4, 50),
)
def test_what_every_size_promises(n: int, colluding: int, loss: int, nominated: int | None) -> None:
    """`colluding` is per thousand."""
    try:
        sizes = sized(n, nominated, colluders=n * colluding // 1000, loss=loss)
    except PeerFault:
        with refused("cohort-too-small", ...):
            sized(n, colluders=n * colluding // 1000, loss=loss)
        return
    q = sizes.quorum
    assert 2 * q.threshold > q.decryptors + q.decryptor_colluders
    assert n - count_dropouts(n, loss) >= q.survivors_min or q.survivors_min == q.colluders + q.honest_min
    if nominated is not None:
        # colluders who answer nothing can't stall the rest
        assert q.decryptors - q.decryptor_colluders >= q.threshold
    assert sizes.degree == n - 1 or (sizes.degree % 2 == 0 and 2 <= sizes.degree < n - 1)
    assert 0 <= sizes.window_dropped_max < max(sizes.degree // 2, 1)


@pytest.mark.parametrize(
    ("nominated", "options"),
    [
        (0, {}),
        (-1, {}),
        (61, {}),
        (7, {"present": 8}),
        (3, {"present": -1}),
        (80, {"present": 61}),
        (None, {"present": 7}),
        (None, {"colluders": -1}),
        (None, {"honest_min": 2}),
    ],
)
def test_our_own_nonsense_is_a_misuse(nominated: int | None, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        sized(60, nominated, **options)


@pytest.mark.parametrize(("nominated", "fits"), [(1_000, True), (1_001, False)])
def test_at_most_a_thousand_members_decrypt(nominated: int, *, fits: bool) -> None:
    with nullcontext() if fits else refused("cohort-too-small"):
        assert sized(1_200, nominated).quorum.decryptors == nominated


def test_members_other_than_those_sized_for_are_a_misuse() -> None:
    sizes = sized(60, 7)
    for count in (59, 61):
        with pytest.raises(Misuse, match=rf"^{count} members, sized for 60$"):
            sizes.choose_decryptors(ids(count), ids(7), BEACON)
    with pytest.raises(Misuse, match=r"^6 decryptors, sized for 7$"):
        sizes.choose_decryptors(ids(60), ids(6), BEACON)


def test_nominees_that_stay_away_take_no_colluder_with_them() -> None:
    sizes = sized(100, 31, present=25)
    assert (sizes.quorum.decryptors, sizes.quorum.decryptor_colluders, sizes.quorum.threshold) == (25, 10, 18)
    nominees = (*ids(100)[:25], "x-1", "x-2", "x-3", "x-4", "x-5", "x-6")
    assert sizes.choose_decryptors(ids(100), nominees, BEACON) == ids(100)[:25]


def test_a_sum_is_sized_for_the_whole_roster() -> None:
    sizes = sized(8, colluders=2, roster=10)
    assert (sizes.quorum.survivors_min, sizes.quorum.threshold) == (7, 6)
    with refused("cohort-too-small"):
        sized(5, colluders=2, roster=11)
