"""ML-KEM-768 (FIPS 203) in integers of numpy: tests make ciphertexts from a given message with it. It is not constant-time.

Algorithms and sections are those of FIPS 203. A polynomial is a row of 256 integers below q.
"""

from functools import lru_cache
from hashlib import sha3_256, sha3_512, shake_128, shake_256
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Q, K = 3329, 3
KEY_BYTES, CIPHERTEXT_BYTES = 1184, 1088
BITS_U, BITS_V = 10, 4
REVERSED = [int(f"{i:07b}"[::-1], 2) for i in range(128)]
ZETAS = np.array([pow(17, power, Q) for power in REVERSED])
GAMMAS = np.array([pow(17, 2 * power + 1, Q) for power in REVERSED])

Ints: TypeAlias = npt.NDArray[np.int64]
"""One polynomial or several: the last axis has 256 coefficients."""


def split(data: bytes, bits: int) -> Ints:
    """Return the little-endian words of this width; they fill the bytes."""
    ones = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, bits)
    return ones @ (1 << np.arange(bits))


def byte_encode(polys: Ints, bits: int) -> bytes:  # algorithm 5, of one or more polynomials
    ones = polys[..., None] >> np.arange(bits) & 1
    return np.packbits(ones.astype(np.uint8), bitorder="little").tobytes()


def byte_decode(data: bytes, bits: int) -> Ints:  # algorithm 6, of one or more polynomials
    return split(data, bits).reshape(-1, 256)


def compress(polys: Ints, bits: int) -> Ints:  # §4.2.1; no value is halfway
    return ((polys << bits) + Q // 2) // Q % (1 << bits)


def decompress(polys: Ints, bits: int) -> Ints:
    return polys * Q + (1 << bits - 1) >> bits


def sample_ntt(seed: bytes) -> Ints:  # algorithm 7; appendix B allows a limit of 280 times 3 bytes or more
    words = split(shake_128(seed).digest(1344), 12)
    return words[words < Q][:256]


def sample_cbd(seed: bytes, numbers: range) -> Ints:  # algorithm 8 over PRF, both with η = 2
    drawn = split(b"".join(shake_256(seed + bytes([number])).digest(128) for number in numbers), 1)
    pairs: Ints = drawn.reshape(-1, 256, 2, 2).sum(axis=-1)
    return (pairs[..., 0] - pairs[..., 1]) % Q


def ntt(polys: Ints) -> Ints:  # algorithm 9; ζ of a layer's blocks follow each other
    found = polys
    for blocks in (1, 2, 4, 8, 16, 32, 64):
        parts = found.reshape(*polys.shape[:-1], blocks, 2, -1)
        low, product = parts[..., 0, :], parts[..., 1, :] * ZETAS[blocks : 2 * blocks, None]
        found = np.stack([low + product, low - product], axis=-2) % Q
    return found.reshape(polys.shape)


def inverse_ntt(polys: Ints) -> Ints:  # algorithm 10
    found = polys
    for blocks in (64, 32, 16, 8, 4, 2, 1):
        parts = found.reshape(*polys.shape[:-1], blocks, 2, -1)
        low, high = parts[..., 0, :], parts[..., 1, :]
        zetas = ZETAS[blocks : 2 * blocks][::-1, None]
        found = np.stack([low + high, zetas * (high - low)], axis=-2) % Q
    return found.reshape(polys.shape) * 3303 % Q


def multiply(left: Ints, right: Ints) -> Ints:  # algorithms 11 and 12
    (a0, a1), (b0, b1) = (np.moveaxis(each.reshape(*each.shape[:-1], 128, 2), -1, 0) for each in (left, right))
    return np.stack([a0 * b0 + a1 * b1 % Q * GAMMAS, a0 * b1 + a1 * b0], axis=-1).reshape(*np.shape(a0)[:-1], 256) % Q


def dot(rows: Ints, column: Ints) -> Ints:
    """Multiply a vector of polynomials, or the rows of a matrix, with a vector."""
    summed: Ints = multiply(rows, np.broadcast_to(column, rows.shape)).sum(axis=-2)
    return summed % Q


@lru_cache(64)
def matrix(rho: bytes) -> Ints:
    """Return Â."""
    return np.array([[sample_ntt(rho + bytes([j, i])) for j in range(K)] for i in range(K)])


def encrypt(key: bytes, message: bytes, randomness: bytes) -> bytes:  # K-PKE.Encrypt, algorithm 14
    t, rho = byte_decode(key[:-32], 12), key[-32:]
    drawn = sample_cbd(randomness, range(2 * K + 1))
    y = ntt(drawn[:K])
    u = inverse_ntt(dot(matrix(rho).swapaxes(0, 1), y)) + drawn[K : 2 * K]
    v = inverse_ntt(dot(t, y)) + drawn[2 * K] + decompress(split(message, 1), 1)
    return byte_encode(compress(u % Q, BITS_U), BITS_U) + byte_encode(compress(v % Q, BITS_V), BITS_V)


def decrypt(secret: Ints, ciphertext: bytes) -> bytes:  # K-PKE.Decrypt, algorithm 15
    cut = 32 * BITS_U * K
    u = ntt(decompress(byte_decode(ciphertext[:cut], BITS_U), BITS_U))
    v = decompress(split(ciphertext[cut:], BITS_V), BITS_V)
    return byte_encode(compress((v - inverse_ntt(dot(secret, u))) % Q, 1), 1)


def is_key(key: bytes) -> bool:
    """Check an encapsulation key (§7.2): its length, and that every coefficient is below q."""
    return len(key) == KEY_BYTES and bool((split(key[:-32], 12) < Q).all())


def generate(seed: bytes) -> tuple[bytes, bytes]:
    """Return the encapsulation key and the expanded decapsulation key of d ‖ z (algorithms 13 and 16)."""
    d, z = seed[:32], seed[32:]
    assert len(z) == 32
    expanded = sha3_512(d + bytes([K])).digest()
    rho, sigma = expanded[:32], expanded[32:]
    secret, error = ntt(sample_cbd(sigma, range(2 * K))).reshape(2, K, 256)
    key = byte_encode((dot(matrix(rho), secret) + error) % Q, 12) + rho
    return key, byte_encode(secret, 12) + key + sha3_256(key).digest() + z


def encapsulate(key: bytes, message: bytes) -> tuple[bytes, bytes]:
    """Return the shared secret and the ciphertext of 32 bytes m (algorithm 17). The key has been checked."""
    assert len(message) == 32
    drawn = sha3_512(message + sha3_256(key).digest()).digest()
    return drawn[:32], encrypt(key, message, drawn[32:])


def decapsulate(private: bytes, ciphertext: bytes) -> bytes:
    """Return the shared secret (algorithm 18). Raises ValueError if the ciphertext or the key fails the checks of §7.3."""
    secret, key = private[: 384 * K], private[384 * K : -64]
    digest, z = private[-64:-32], private[-32:]
    if len(ciphertext) != CIPHERTEXT_BYTES:
        raise ValueError(f"ML-KEM-768 ciphertext: got {len(ciphertext)} bytes, expected {CIPHERTEXT_BYTES}")
    if sha3_256(key).digest() != digest:  # so also for other lengths
        raise ValueError("ML-KEM-768 decapsulation key: its hash is not that of the key inside")
    message = decrypt(byte_decode(secret, 12), ciphertext)
    drawn = sha3_512(message + digest).digest()
    accepted = encrypt(key, message, drawn[32:]) == ciphertext
    return drawn[:32] if accepted else shake_256(z + ciphertext).digest(32)
