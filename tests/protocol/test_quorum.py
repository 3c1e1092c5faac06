import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.sizing import Quorum, colluding_nominees


@pytest.mark.parametrize(("nominees", "colluders"), [(0, 3), (-1, 3), (7, -1)])
def test_nominees_that_cannot_be_are_a_misuse(nominees: int, colluders: int) -> None:
    with pytest.raises(Misuse, match=f"{nominees} nominees .*a={colluders}"):
        colluding_nominees(nominees, colluders)


@given(data=st.data(), n=st.integers(3, 1000), h=st.integers(3, 20))
def test_what_every_quorum_promises(data: st.DataObject, n: int, h: int) -> None:
    decryptors = data.draw(st.integers(2, n))
    a = data.draw(st.none() | st.integers(0, n))
    a_d = data.draw(st.none() | st.integers(0, min(n // 4 if a is None else a, decryptors)))
    try:
        q = Quorum.derive_quorum(n, decryptors, colluders=a, decryptor_colluders=a_d, honest_min=h)
    except PeerFault as fault:
        if fault.cause is not Cause.COHORT_TOO_SMALL:
            raise
        return
    # no two outcomes certified, no secret recovered twice over: two thresholds share an honest decryptor
    assert 2 * q.threshold > q.decryptors + q.decryptor_colluders
    # colluders alone recover nothing
    assert q.decryptor_colluders < q.threshold <= q.decryptors
    # a sum hides among h_min honest members at the least
    assert q.survivors_min - q.colluders >= h >= 3
    # two certified sets of a cohort meet in an honest member
    assert 2 * q.survivors_min - q.members > q.colluders
    assert q.survivors_min <= q.members
    assert min(q.members_may_miss, q.decryptors_may_miss) >= 0


@pytest.mark.parametrize(
    ("members", "decryptors", "colluders"),
    [(4, 4, 2), (8, 8, 6), (4, 4, 4), (4, 4, 400), (12, 3, 3), (5, 1, 0), (5, 0, 0), (2, 2, 0)],
)
def test_a_quorum_that_cannot_be_met_is_refused(members: int, decryptors: int, colluders: int) -> None:
    with refused("cohort-too-small"):
        Quorum.derive_quorum(members, decryptors, colluders=colluders)


@pytest.mark.parametrize(
    ("decryptors", "colluders", "honest_min"), [(5, 1, 2), (5, 1, 0), (5, -1, 3), (6, 1, 3)]
)
def test_our_own_nonsense_is_a_misuse(decryptors: int, colluders: int, honest_min: int) -> None:
    with pytest.raises(Misuse, match="n=5"):
        Quorum.derive_quorum(5, decryptors, colluders=colluders, honest_min=honest_min)


@pytest.mark.parametrize("colluding", [-1, 4, 8])
def test_decryptors_colluding_are_at_most_those_there_and_those_in_all(colluding: int) -> None:
    with pytest.raises(Misuse, match=f"L=7, a=3, a_D={colluding}"):
        Quorum.derive_quorum(12, 7, colluders=3, decryptor_colluders=colluding)


def test_very_small_cohorts_come_with_a_caution() -> None:
    assert Quorum.derive_quorum(3, 3).caution()
    assert Quorum.derive_quorum(4, 4).caution()
    assert Quorum.derive_quorum(5, 5).caution() is None


def test_few_decryptors_come_with_a_caution() -> None:
    few = Quorum.derive_quorum(12, 4, colluders=3, decryptor_colluders=1).caution() or ""
    assert re.match(r"3 .*\b4 .*\b1\b", few)
    assert Quorum.derive_quorum(12, 10, colluders=3, decryptor_colluders=3).caution() is None
