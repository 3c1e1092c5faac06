"""Packing, compared with integers of any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol import packing
from veilsum.protocol.errors import Misuse
from veilsum.protocol.packing import PackingError, add_packed, pack_words, unpack_words
from veilsum.protocol.ring import Ring, Words

WIDTHS = (8, 9, 12, 15, 16, 24, 31, 32, 33, 40, 42, 48, 57, 63, 64)


def reference(words: Words, bits: int) -> bytes:
    """Pack by definition: element i fills the bits i·b … (i+1)·b − 1 of one long integer."""
    joined = sum(word << (i * bits) for i, word in enumerate(low_bits(words, bits)))
    return joined.to_bytes((len(words) * bits + 7) // 8, "little")


def random_words(bits: int, elements: int, seed: int = 0) -> Words:
    """Draw words with noise above the low bits too."""
    dtype = Ring(bits).dtype
    rng = np.random.default_rng([seed, bits, elements])
    words: Words = rng.integers(0, np.iinfo(dtype).max, elements, dtype=dtype, endpoint=True)
    return words


def low_bits(words: Words, bits: int) -> list[int]:
    return [int(word) & (2**bits - 1) for word in words]


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_and_short_length_agrees_with_the_definition(bits: int) -> None:
    for elements in range(41):
        words = random_words(bits, elements)
        packed = pack_words(words, bits)
        assert bytes(packed) == reference(words, bits)
        unpacked = unpack_words(packed, bits, elements)
        assert unpacked.dtype == words.dtype
        assert unpacked.tolist() == low_bits(words, bits)


@pytest.mark.parametrize("bits", WIDTHS)
def test_blocks_join_without_a_seam(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACKING_BLOCK_BYTES", 1024)
    words = random_words(bits, 777)
    packed = pack_words(words, bits)
    assert bytes(packed) == reference(words, bits)
    assert unpack_words(packed, bits, 777).tolist() == low_bits(words, bits)


@given(
    bits=st.sampled_from(WIDTHS),
    elements=st.integers(0, 300),
    cut=st.integers(0, 40),
    seed=st.integers(0, 2**32),
)
def test_chunks_of_a_multiple_of_8_elements_join_to_the_whole(
    bits: int, elements: int, cut: int, seed: int
) -> None:
    words = random_words(bits, elements, seed)
    chunks = bytes(pack_words(words[: 8 * cut], bits)) + bytes(pack_words(words[8 * cut :], bits))
    assert chunks == bytes(pack_words(words, bits)) == reference(words, bits)
    assert unpack_words(chunks, bits, elements).tolist() == low_bits(words, bits)


@pytest.mark.parametrize("bits", [32, 42])
def test_packed_bytes_never_alias_the_words(bits: int) -> None:
    words = np.zeros(8, Ring(bits).dtype)
    packed = pack_words(words, bits)
    words += 1
    assert not any(packed)


@pytest.mark.parametrize("bits", [32, 42])
def test_writes_into_the_output_it_is_given(bits: int) -> None:
    words = random_words(bits, 13)
    size = Ring(bits).packed_bytes(13)
    buffer = bytearray(b"\xff" * (size + 2))
    packed = pack_words(words, bits, out=buffer)
    assert buffer == bytes(packed) + b"\xff\xff"
    assert bytes(packed) == reference(words, bits)


@pytest.mark.parametrize("bits", [width for width in WIDTHS if width % 8])
def test_refuses_any_set_padding_bit(bits: int) -> None:
    for elements in range(1, 8):
        packed = bytes(pack_words(random_words(bits, elements), bits))
        for bit in range(bits * elements % 8 or 8, 8):
            with pytest.raises(PackingError, match="must be zero"):
                unpack_words(packed[:-1] + bytes([packed[-1] | 1 << bit]), bits, elements)


def test_refuses_wrong_use() -> None:
    words = random_words(42, 8)
    with pytest.raises(Misuse, match="8 to 64 bits"):
        pack_words(words, 7)
    with pytest.raises(Misuse, match="uint32"):
        pack_words(words, 32)
    with pytest.raises(Misuse, match="uint64"):
        pack_words(words.reshape(2, 4), 42)
    with pytest.raises(Misuse, match="42 writable bytes"):
        pack_words(words, 42, out=bytearray(41))
    with pytest.raises(Misuse, match="42 writable bytes"):
        pack_words(words, 42, out=memoryview(bytes(42)))
    with pytest.raises(Misuse, match="no -1 elements"):
        unpack_words(b"", 42, -1)


@pytest.mark.parametrize("elements", [1, 2, 9])
@pytest.mark.parametrize("bits", [8, 13, 32, 48, 64])
def test_adding_what_is_packed_is_adding_what_was(bits: int, elements: int) -> None:
    ring, rng = Ring(bits), np.random.default_rng(bits)
    words = rng.integers(0, (1 << bits) - 1, elements, np.uint64, endpoint=True).astype(ring.dtype)
    total = np.arange(elements).astype(ring.dtype)
    add_packed(total, pack_words(words, bits), bits)
    expected = (words.astype(object) + np.arange(elements)) % (1 << bits)
    assert [int(word) % (1 << bits) for word in total] == expected.tolist()
