"""ML-KEM-768 (FIPS 203) in plain integers: tests make ciphertexts from a given message with it. It is slow and not constant-time.

Algorithms and sections are those of FIPS 203. A polynomial is a list of 256 integers below q.
"""

from functools import lru_cache
from hashlib import sha3_256, sha3_512, shake_128, shake_256

Q, K = 3329, 3
KEY_BYTES, CIPHERTEXT_BYTES = 1184, 1088
BITS_U, BITS_V = 10, 4
REVERSED = [int(f"{i:07b}"[::-1], 2) for i in range(128)]
ZETAS = [pow(17, power, Q) for power in REVERSED]
GAMMAS = [pow(17, 2 * power + 1, Q) for power in REVERSED]

Poly = list[int]


def split(data: bytes, bits: int) -> list[int]:
    """Return the little-endian words of this width; they fill the bytes."""
    number = int.from_bytes(data, "little")
    return [number >> place & (1 << bits) - 1 for place in range(0, 8 * len(data), bits)]


def byte_encode(poly: Poly, bits: int) -> bytes:  # algorithm 5
    return sum(value << bits * i for i, value in enumerate(poly)).to_bytes(32 * bits, "little")


def byte_decode(data: bytes, bits: int) -> list[Poly]:  # algorithm 6, of one or more polynomials
    return [split(data[i : i + 32 * bits], bits) for i in range(0, len(data), 32 * bits)]


def compress(poly: Poly, bits: int) -> Poly:  # §4.2.1; no value is halfway
    return [((value << bits) + Q // 2) // Q % (1 << bits) for value in poly]


def decompress(poly: Poly, bits: int) -> Poly:
    return [value * Q + (1 << bits - 1) >> bits for value in poly]


def sample_ntt(seed: bytes) -> Poly:  # algorithm 7; appendix B allows a limit of 280 times 3 bytes or more
    return [value for value in split(shake_128(seed).digest(1344), 12) if value < Q][:256]


def sample_cbd(seed: bytes, number: int) -> Poly:  # algorithm 8 over PRF, both with η = 2
    drawn = split(shake_256(seed + bytes([number])).digest(128), 4)
    return [((value & 3).bit_count() - (value >> 2).bit_count()) % Q for value in drawn]


def ntt(poly: Poly) -> Poly:  # algorithm 9
    found, zetas = [*poly], iter(ZETAS[1:])
    for length in (128, 64, 32, 16, 8, 4, 2):
        for start in range(0, 256, 2 * length):
            zeta = next(zetas)
            for j in range(start, start + length):
                product = zeta * found[j + length]
                found[j], found[j + length] = (found[j] + product) % Q, (found[j] - product) % Q
    return found


def inverse_ntt(poly: Poly) -> Poly:  # algorithm 10
    found, zetas = [*poly], reversed(ZETAS[1:])
    for length in (2, 4, 8, 16, 32, 64, 128):
        for start in range(0, 256, 2 * length):
            zeta = next(zetas)
            for j in range(start, start + length):
                low, high = found[j], found[j + length]
                found[j], found[j + length] = (low + high) % Q, zeta * (high - low) % Q
    return [value * 3303 % Q for value in found]


def multiply(left: Poly, right: Poly) -> Poly:  # algorithms 11 and 12
    product = Poly()
    for i, gamma in enumerate(GAMMAS):
        (a0, a1), (b0, b1) = left[2 * i : 2 * i + 2], right[2 * i : 2 * i + 2]
        product += [(a0 * b0 + a1 * b1 * gamma) % Q, (a0 * b1 + a1 * b0) % Q]
    return product


def add(*polys: Poly) -> Poly:
    return [sum(values) % Q for values in zip(*polys, strict=True)]


def dot(left: list[Poly], right: list[Poly]) -> Poly:
    return add(*map(multiply, left, right))


@lru_cache(64)
def matrix(rho: bytes) -> list[list[Poly]]:
    """Return Â, row by row."""
    return [[sample_ntt(rho + bytes([j, i])) for j in range(K)] for i in range(K)]


def encrypt(key: bytes, message: bytes, randomness: bytes) -> bytes:  # K-PKE.Encrypt, algorithm 14
    t, rho = byte_decode(key[:-32], 12), key[-32:]
    y = [ntt(sample_cbd(randomness, i)) for i in range(K)]
    columns = map(list, zip(*matrix(rho), strict=True))
    u = [add(inverse_ntt(dot(a, y)), sample_cbd(randomness, K + i)) for i, a in enumerate(columns)]
    v = add(inverse_ntt(dot(t, y)), sample_cbd(randomness, 2 * K), decompress(split(message, 1), 1))
    return b"".join(byte_encode(compress(p, BITS_U), BITS_U) for p in u) + byte_encode(compress(v, BITS_V), BITS_V)


def decrypt(secret: list[Poly], ciphertext: bytes) -> bytes:  # K-PKE.Decrypt, algorithm 15
    cut = 32 * BITS_U * K
    u = [ntt(decompress(poly, BITS_U)) for poly in byte_decode(ciphertext[:cut], BITS_U)]
    v = decompress(split(ciphertext[cut:], BITS_V), BITS_V)
    noisy = inverse_ntt(dot(secret, u))
    return byte_encode(compress([(a - b) % Q for a, b in zip(v, noisy, strict=True)], 1), 1)


def is_key(key: bytes) -> bool:
    """Check an encapsulation key (§7.2): its length, and that every coefficient is below q."""
    return len(key) == KEY_BYTES and all(value < Q for value in split(key[:-32], 12))


def generate(seed: bytes) -> tuple[bytes, bytes]:
    """Return the encapsulation key and the expanded decapsulation key of d ‖ z (algorithms 13 and 16)."""
    d, z = seed[:32], seed[32:]
    assert len(z) == 32
    expanded = sha3_512(d + bytes([K])).digest()
    rho, sigma = expanded[:32], expanded[32:]
    secret = [ntt(sample_cbd(sigma, i)) for i in range(K)]
    t = [add(dot(row, secret), ntt(sample_cbd(sigma, K + i))) for i, row in enumerate(matrix(rho))]
    key = b"".join(byte_encode(poly, 12) for poly in t) + rho
    return key, b"".join(byte_encode(poly, 12) for poly in secret) + key + sha3_256(key).digest() + z


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
