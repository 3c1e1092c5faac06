"""The ring: its domain, its headroom, and conversions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.errors import Misuse
from veilsum.protocol.ring import Ring, Words

WIDTHS = (8, 9, 13, 16, 31, 32, 33, 48, 63, 64)


@pytest.mark.parametrize("bits", [-1, 0, 7, 65])
def test_refuses_a_width_outside_8_to_64(bits: int) -> None:
    with pytest.raises(Misuse, match=f"not {bits}"):
        Ring(bits)


def test_refuses_a_negative_number_of_elements() -> None:
    with pytest.raises(Misuse, match="no -1 elements"):
        Ring(8).packed_bytes(-1)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_whole_centred_range_returns_from_the_ring(bits: int) -> None:
    ring, half = Ring(bits), 2 ** (bits - 1)
    vector = np.array([-half, -half + 1, -1, 0, 1, half - 1], np.int64)
    assert ring.lift_signed(ring.to_ring(vector)).tolist() == vector.tolist()


@pytest.mark.parametrize("bits", [b for b in WIDTHS if b < 64])
@pytest.mark.parametrize("above", [True, False])
def test_a_value_outside_the_range_is_named_by_its_index_alone(bits: int, above: bool) -> None:  # noqa: FBT001
    half = 2 ** (bits - 1)
    value = half if above else -half - 1
    vector = np.array([-half, half - 1, value, 0, value], np.int64)
    with pytest.raises(Misuse, match=r"^element 2 is outside") as refusal:
        Ring(bits).to_ring(vector)
    assert str(abs(value)) not in str(refusal.value)


@pytest.mark.parametrize("bits", [8, 31, 32, 33, 42, 63, 64])
def test_lift_ignores_the_bits_above_the_ring(bits: int) -> None:
    ring = Ring(bits)
    rng = np.random.default_rng(bits)
    words: Words = rng.integers(0, np.iinfo(ring.dtype).max, 100, dtype=ring.dtype, endpoint=True)
    low = words & ring.dtype.type(ring.mask)
    lifted = ring.lift_signed(words)
    assert lifted.dtype == np.int64
    assert lifted.tolist() == ring.lift_signed(low).tolist()
    assert lifted.tolist() == [int(w) - (int(w) >> (bits - 1) << bits) for w in low]


@given(bits=st.sampled_from(WIDTHS), data=st.data())
def test_sums_of_words_are_sums_of_integers(bits: int, data: st.DataObject) -> None:
    ring, half = Ring(bits), 2 ** (bits - 1)
    values = data.draw(st.lists(st.integers(-half, half - 1), min_size=1, max_size=5))
    total = np.zeros(1, ring.dtype)
    for value in values:
        total += ring.to_ring(np.array([value], np.int64))
    assert ring.lift_signed(total).tolist() == [(sum(values) + half) % 2**bits - half]


def test_writes_into_the_output_it_is_given() -> None:
    ring = Ring(32)
    out = np.empty(3, np.uint32)
    assert ring.to_ring(np.array([1, -1, 0], np.int64), out=out) is out
    assert out.tolist() == [1, 2**32 - 1, 0]


@pytest.mark.parametrize("vector", [np.zeros(3), np.zeros(3, np.int32), np.zeros((1, 3), np.int64)])
def test_takes_nothing_but_int64_vectors(vector: np.ndarray) -> None:
    with pytest.raises(Misuse, match="int64"):
        Ring(48).to_ring(vector)


@pytest.mark.parametrize("out", [np.empty(3, np.uint32), np.empty((1, 3), np.uint64), np.empty(4, np.uint64)])
def test_refuses_an_output_of_another_dtype_or_shape(out: Words) -> None:
    with pytest.raises(Misuse):
        Ring(48).to_ring(np.zeros(3, np.int64), out=out)


@pytest.mark.parametrize("words", [np.zeros(3, np.uint64), np.zeros((1, 3), np.uint32)])
def test_lifts_nothing_but_its_own_words(words: Words) -> None:
    with pytest.raises(Misuse, match="uint32"):
        Ring(32).lift_signed(words)
