import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.cost import estimate
from veilsum.protocol.errors import Misuse
from veilsum.protocol.sizing import Quorum

ELEMENTS = 947_940  # packed V and U at l = 1280, C = 100


@pytest.mark.parametrize(
    ("members", "lost", "ring_bits", "member_ms", "upload_mb", "coordinator_ms"),
    [
        (10, 1, 32, 11, 3.8, 34),
        (10, 1, 48, 16, 5.7, 54),
        (100, 10, 32, 78, 4.4, 780),
        (100, 10, 48, 108, 6.2, 1_229),
    ],
)
def test_measured_rounds_cost_once_to_twice_the_estimate(
    members: int, lost: int, ring_bits: int, member_ms: int, upload_mb: float, coordinator_ms: int
) -> None:
    """The README's table; all decrypt, on the complete graph."""
    cost = estimate(Quorum.derive(members, members), members - 1, lost, ELEMENTS, ring_bits)
    assert 1 < member_ms / (cost.decryptor_cpu_ns / 1e6) < 2
    assert 1 < coordinator_ms / (cost.coordinator_cpu_ns / 1e6) < 2
    assert cost.upload_bytes / 1e6 == pytest.approx(upload_mb, abs=0.1)
    assert cost.stored_bytes == members * cost.upload_bytes


@given(n=st.integers(4, 300), elements=st.integers(1, 10**7), ring_bits=st.integers(8, 63), data=st.data())
def test_more_of_anything_costs_no_less(n: int, elements: int, ring_bits: int, data: st.DataObject) -> None:
    quorum = Quorum.derive(n, n)
    degree = data.draw(st.integers(1, n - 2))
    base = estimate(quorum, degree, 0, elements, ring_bits)
    assert base.member_cpu_ns < base.decryptor_cpu_ns
    for more in (
        estimate(quorum, degree + 1, 0, elements, ring_bits),
        estimate(quorum, degree, 0, elements + 1, ring_bits),
        estimate(quorum, degree, 0, elements, ring_bits + 1),
    ):
        assert more.member_cpu_ns >= base.member_cpu_ns
        assert more.decryptor_cpu_ns >= base.decryptor_cpu_ns
        assert more.upload_bytes >= base.upload_bytes
        assert more.coordinator_cpu_ns >= base.coordinator_cpu_ns


@pytest.mark.parametrize(
    ("degree", "lost", "elements", "ring_bits"),
    [
        (0, 0, 1, 32),
        (9, 0, 1, 32),
        (8, -1, 1, 32),
        (8, 10, 1, 32),
        (8, 0, 0, 32),
        (8, 0, 1, 7),
        (8, 0, 1, 65),
    ],
)
def test_impossible_rounds_are_a_misuse(degree: int, lost: int, elements: int, ring_bits: int) -> None:
    with pytest.raises(Misuse):
        estimate(Quorum.derive(9, 9), degree, lost, elements, ring_bits)
