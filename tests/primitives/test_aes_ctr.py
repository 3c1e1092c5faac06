from collections.abc import Callable

import numpy as np
import pytest

from veilsum.protocol.keystream import Masks
from veilsum.protocol.ring import Ring

BLOCK_BYTES = 16

# NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt: key, initial counter, and the output block under each counter.
KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
OUTPUT = (
    "0bdf7df1591716335e9a8b15c860c502",
    "5a6e699d536119065433863c8f657b94",
    "1bc12c9c01610d5d0d8bd6a3378eca62",
    "2956e1c8693536b1bee99c73a31576b6",
)


def stream(key: bytes, counter: int, blocks: int, bits: int) -> bytes:
    """Blocks of G(key) from a counter on; a stream is addressed at 8 elements, so it may begin some blocks earlier."""
    ring = Ring(bits)
    per_block = BLOCK_BYTES // ring.itemsize
    lead = counter % (8 // per_block)
    words = np.zeros(per_block * (lead + blocks), ring.dtype)
    Masks(ring, added=[key]).apply(words, per_block * (counter - lead))
    return words.astype(ring.dtype.newbyteorder("<")).tobytes()[BLOCK_BYTES * lead :]


@pytest.mark.parametrize("bits", [32, 64])
def test_sp_800_38a(bits: int) -> None:
    assert stream(KEY, COUNTER, 4, bits).hex() == "".join(OUTPUT)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("name", "count"), [("GFSbox", 5), ("KeySbox", 16), ("VarTxt", 128), ("VarKey", 256)]
)
def test_the_cipher_under_every_counter_of_the_aesavs(
    cavp: Callable[[str], list[dict[str, bytes]]], name: str, count: int, bits: int
) -> None:
    """The block of a stream at counter c is AES(c): the single-block answers of CBC with IV zero, read that way."""
    vectors = cavp(f"Cipher/AES/CBC{name}256.rsp")
    assert len(vectors) == count
    for vector in vectors:
        assert vector["IV"] == bytes(BLOCK_BYTES)
        counter = int.from_bytes(vector["PLAINTEXT"], "big")
        assert stream(vector["KEY"], counter, 1, bits) == vector["CIPHERTEXT"]
