"""Random bytes from a seed, so that noise can be repeated."""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from veilsum.protocol.errors import Misuse

SEED_BYTES, AES_BLOCK_BYTES, BLOCK_BYTES = 32, 16, 1 << 17
ZEROS = memoryview(bytes(BLOCK_BYTES))


class Keystream:
    """A repeatable source of random bytes: AES-256-CTR from its start.

    Args:
        seed: 32 bytes.

    Raises:
        Misuse: the seed isn't 32 bytes.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise Misuse(f"a keystream's seed is {SEED_BYTES} bytes")
        self._stream = Cipher(AES256(seed), CTR(bytes(AES_BLOCK_BYTES))).encryptor()
        self._buffer = memoryview(bytearray(BLOCK_BYTES + AES_BLOCK_BYTES - 1))

    def __repr__(self) -> str:
        return "<Keystream>"

    def __call__(self, count_bytes: int) -> memoryview:
        """Return the next `count_bytes` bytes, at most 128 KiB; the next call overwrites them.

        Raises:
            Misuse: a count outside 0 … 131,072.
        """
        if not 0 <= count_bytes <= BLOCK_BYTES:
            raise Misuse(f"a keystream gives 0 to {BLOCK_BYTES} bytes at a time, not {count_bytes}")
        self._stream.update_into(ZEROS[:count_bytes], self._buffer)
        return self._buffer[:count_bytes].toreadonly()
