"""Masks, compared with AES on single counter blocks."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from tests.support.calls import record_calls
from veilsum.protocol import keystream
from veilsum.protocol.errors import Misuse
from veilsum.protocol.keystream import Masks
from veilsum.protocol.ring import Ring, Words

SEEDS = [bytes([i]) * 16 + bytes([i ^ 0x5A]) * 16 for i in range(7)]
RINGS = [Ring(8), Ring(32), Ring(42), Ring(64)]


def reference(seed: bytes, ring: Ring, elements: int) -> Words:
    """Compute block i of the stream: the raw cipher on i, big-endian."""
    blocks = -(-elements * ring.itemsize // 16)
    cipher = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
    stream = b"".join(cipher.update(i.to_bytes(16, "big")) for i in range(blocks))
    return np.frombuffer(stream, ring.dtype.newbyteorder("<"))[:elements].astype(ring.dtype)


@pytest.fixture(params=[False, True], ids=["ctr", "gcm"])
def gcm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Use either implementation of the stream, whichever this machine would choose."""
    wide: bool = request.param
    monkeypatch.setattr(keystream, "WIDE_GCM", wide)
    return wide


@pytest.mark.usefixtures("gcm")
@pytest.mark.parametrize("ring", [Ring(32), Ring(48)])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (0, 0, 1)])
def test_long_chunks_give_the_same_masks_in_any_order(ring: Ring, order: tuple[int, ...]) -> None:
    elements = keystream.KEYSTREAM_BLOCK_BYTES // ring.itemsize + 8
    masks = Masks(ring, added=SEEDS[:1])
    whole = reference(SEEDS[0], ring, 3 * elements)
    for chunk in order:
        words = np.zeros(elements, ring.dtype)
        masks.apply_to_chunk(words, chunk * elements)
        assert (words == whole[chunk * elements : (chunk + 1) * elements]).all()


def test_a_long_vector_takes_its_first_blocks_alone_from_ctr_where_gcm_is_wide(
    gcm: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = record_calls(monkeypatch, keystream, "Cipher", lambda _, mode: mode.name)
    masks = Masks(Ring(32), added=SEEDS[:2])
    elements = keystream.KEYSTREAM_BLOCK_BYTES // 4
    for start in range(0, 3 * elements, elements):
        masks.apply_to_chunk(np.zeros(elements, np.uint32), start)
    assert opened == (["CTR", "CTR", "GCM", "GCM"] if gcm else ["CTR", "CTR"])


@given(ring=st.sampled_from(RINGS), cuts=st.lists(st.integers(0, 125), max_size=6), sequential=st.booleans())
def test_any_split_into_chunks_gives_the_same_masks(ring: Ring, cuts: list[int], sequential: bool) -> None:  # noqa: FBT001
    whole = np.zeros(1001, ring.dtype)
    Masks(ring, added=SEEDS[:3], subtracted=SEEDS[3:5]).apply_to_chunk(whole)

    parts = np.zeros(1001, ring.dtype)
    masks = Masks(ring, added=SEEDS[:3], subtracted=SEEDS[3:5])
    bounds = [0, *sorted(8 * cut for cut in cuts), 1001]
    chunks = list(pairwise(bounds))
    for start, stop in chunks if sequential else reversed(chunks):
        masks.apply_to_chunk(parts[start:stop], offset_elements=start)
    assert parts.tolist() == whole.tolist()


def test_an_interrupted_chunk_starts_anew() -> None:
    masks = Masks(Ring(32), added=SEEDS)
    frozen = np.zeros(64, np.uint32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        masks.apply_to_chunk(frozen)
    words = np.zeros(64, np.uint32)
    masks.apply_to_chunk(words)
    expected = np.zeros(64, np.uint32)
    Masks(Ring(32), added=SEEDS).apply_to_chunk(expected)
    assert words.tolist() == expected.tolist()


@pytest.mark.parametrize("ring", RINGS)
def test_added_and_subtracted_seeds_have_their_signs(ring: Ring) -> None:
    words = np.arange(100, dtype=ring.dtype)
    Masks(ring, added=SEEDS[:4], subtracted=SEEDS[4:]).apply_to_chunk(words)
    expected = np.arange(100, dtype=ring.dtype)
    for seed in SEEDS[:4]:
        expected += reference(seed, ring, 100)
    for seed in SEEDS[4:]:
        expected -= reference(seed, ring, 100)
    assert words.tolist() == expected.tolist()


def test_repr_shows_no_seed() -> None:
    assert repr(Masks(Ring(32), added=SEEDS, subtracted=SEEDS)) == "<Masks of 14 seeds>"


def inside_a_group() -> None:
    masks = Masks(Ring(32), added=SEEDS)
    masks.apply_to_chunk(np.zeros(12, np.uint32))
    masks.apply_to_chunk(np.zeros(8, np.uint32), 12)


@pytest.mark.parametrize(
    "misuse",
    [
        *(
            lambda at=at: Masks(Ring(32), added=SEEDS).apply_to_chunk(np.zeros(8, np.uint32), at)
            for at in (-8, -1, 1, 4, 12)
        ),
        inside_a_group,
        *(lambda size=size: Masks(Ring(32), added=[bytes(size)]) for size in (0, 16, 31, 33)),
        lambda: Masks(Ring(32), subtracted=[bytes(32), bytes(31)]),
        lambda: Masks(Ring(48), added=SEEDS).apply_to_chunk(np.zeros(8, np.uint32)),
    ],
)
def test_other_offsets_seeds_and_words_are_a_misuse(misuse: Callable[[], None]) -> None:
    with pytest.raises(Misuse):
        misuse()
