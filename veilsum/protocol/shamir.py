"""Shamir secret sharing of 32-byte secrets over GF(p), p = 2^31 − 1 (protocol, "Ring": Shamir).

A secret is split into nine little-endian limbs of 30 bits. Each limb is the constant term of its own polynomial, whose
other coefficients are uniform in GF(p). The decryptor at position i (from 0) holds the nine values at x = i + 1: nine
little-endian words of 4 bytes, each below p. Any t holders recover the secret; t − 1 learn nothing.

No table is indexed by a secret, and no secret is the operand of a division: sums and products are exact in float64 and
reduced mod the Mersenne prime by shifts. Measured on one core: 100 secrets dealt to 100 holders at t = 63 in 2.5 ms, 200
secrets recovered in 0.6 ms.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import Misuse

LIMB_PRIME = 2**31 - 1
SECRET_BYTES = 32
SHARE_BYTES = 36

_SECRET_LIMBS = 9
_LIMB_BITS = 30
_LIMB_LIMIT = 1 << _LIMB_BITS
_TOP_LIMIT = 1 << (8 * SECRET_BYTES - _LIMB_BITS * (_SECRET_LIMBS - 1))

# Terms summed before a reduction: the largest power of two for which `multiply_elements` is exact.
_EXACT_TERMS = 64

# Elements of a product that are computed at a time, so that they fill 64 KiB: a deal to 100 takes 2.5 ms, and 6 if they exceed the cache.
_SHARE_BLOCK_ELEMENTS = 1 << 13

_Elements: TypeAlias = npt.NDArray[np.int64]


class ShareError(ValueError):
    """The shares cannot come from an honest dealer and honest holders."""


def share_secrets(
    secrets: Sequence[bytes], threshold: int, holders: int, random_bytes: Callable[[int], bytes] = os.urandom
) -> npt.NDArray[np.uint8]:
    """Deal secrets, each with fresh polynomials of degree threshold − 1.

    `threshold` shares, 2 … holders, recover a secret of 32 bytes. `random_bytes(n)` returns n uniform and unpredictable bytes.

    Returns:
        uint8 of shape (holders, m, 36), contiguous: `shares[i]` are the shares of the holder at position i.

    Raises:
        Misuse: a secret isn't 32 bytes, or threshold or holders are outside their domains.
    """
    if not 2 <= threshold <= holders < LIMB_PRIME:
        raise Misuse(
            f"a threshold of {threshold} among {holders} holders: 2 ≤ threshold ≤ holders < 2^31 − 1"
        )
    if any(len(secret) != SECRET_BYTES for secret in secrets):
        raise Misuse(f"a secret is {SECRET_BYTES} bytes")
    columns = len(secrets) * _SECRET_LIMBS
    coefficients = np.empty((threshold, columns), np.int64)
    coefficients[0] = [
        int.from_bytes(secret, "little") >> (_LIMB_BITS * limb) & (_LIMB_LIMIT - 1)
        for secret in secrets
        for limb in range(_SECRET_LIMBS)
    ]
    coefficients[1:] = _draw_elements((threshold - 1) * columns, random_bytes).reshape(threshold - 1, columns)

    x = np.arange(1, holders + 1, dtype=np.int64)
    powers = np.ones((holders, threshold), np.int64)
    for j in range(1, threshold):
        powers[:, j] = powers[:, j - 1] * x % LIMB_PRIME
    words = multiply_elements(powers, coefficients).astype("<u4")
    return words.view(np.uint8).reshape(holders, len(secrets), SHARE_BYTES)


def check_shares(shares: bytes) -> None:
    """Refuse joined shares of 36 bytes that are not canonical.

    Raises:
        ShareError: the length is not a multiple of 36 bytes, or a word is not below p.
    """
    _parse_shares(shares)


def recover_secrets(positions: Sequence[int], shares: Sequence[bytes]) -> list[bytes]:
    """Recover secrets by interpolating the polynomials through the shares of t holders at zero.

    The result is correct if there are at least t shares and all are true. Too few or false shares are not always detected:
    compare the secret with its dealer's commitment.

    `positions` are the holders' positions, distinct and counted from 0. `shares` joins each holder's m shares of 36 bytes.

    Raises:
        ShareError: positions are missing, repeated or outside 0 … p − 2; shares differ in length, have a wrong length or are
            not canonical; or a recovered secret does not fit 32 bytes.
    """
    if len(positions) != len(shares) or not positions:
        raise ShareError(f"{len(positions)} positions with shares from {len(shares)} holders")
    if len(set(positions)) != len(positions):
        raise ShareError("a position appears twice")
    # x = 0 would be the secret itself
    if not all(0 <= position < LIMB_PRIME - 1 for position in positions):
        raise ShareError("a position is outside 0 … p − 2")
    if len({len(row) for row in shares}) != 1:
        raise ShareError("the holders sent shares of different numbers of secrets")
    words = _parse_shares(b"".join(shares)).reshape(len(positions), -1)
    limbs = multiply_elements(_lagrange_at_zero([position + 1 for position in positions]), words).reshape(
        -1, _SECRET_LIMBS
    )
    if (limbs >= _LIMB_LIMIT).any() or (limbs[:, -1] >= _TOP_LIMIT).any():
        raise ShareError(
            "a recovered limb is out of range: a share is false, or shares of different dealings met"
        )
    return [
        sum(limb << (_LIMB_BITS * i) for i, limb in enumerate(row)).to_bytes(SECRET_BYTES, "little")
        for row in limbs.tolist()
    ]


def _parse_shares(shares: bytes) -> _Elements:
    if len(shares) % SHARE_BYTES:
        raise ShareError(f"shares of {SHARE_BYTES} bytes don't fill {len(shares)} bytes")
    words = np.frombuffer(shares, "<u4")
    if (words >= LIMB_PRIME).any():
        raise ShareError("a share has a word that isn't below p")
    return words.astype(np.int64)


def _draw_elements(count: int, random_bytes: Callable[[int], bytes]) -> _Elements:
    """Draw `count` uniform elements of GF(p): 31 bits each, drawn again if they equal p."""

    def draw(size: int) -> _Elements:
        # with an explicit size, numpy refuses too few bytes
        return np.frombuffer(random_bytes(4 * size), "<u4", size).astype(np.int64) & LIMB_PRIME

    elements = draw(count)
    while (rejected := np.flatnonzero(elements == LIMB_PRIME)).size:
        elements[rejected] = draw(rejected.size)
    return elements


def _lagrange_at_zero(xs: Sequence[int]) -> _Elements:
    """Return λ of shape (1, t) with f(0) = Σ λ_i·f(x_i) for every f of degree below t; the points are public."""
    product = prod(xs)
    return np.array(
        [[product // x * pow(prod(y - x for y in xs if y != x), -1, LIMB_PRIME) % LIMB_PRIME for x in xs]],
        np.int64,
    )


def multiply_elements(left: _Elements, right: _Elements) -> _Elements:
    """Multiply matrices over GF(p), in groups of columns whose intermediate values stay in the cache."""
    product = np.empty((left.shape[0], right.shape[1]), np.int64)
    step = max(1, _SHARE_BLOCK_ELEMENTS // left.shape[0])
    for start in range(0, right.shape[1], step):
        columns = slice(start, start + step)
        product[:, columns] = _multiply_exactly(left, right[:, columns])
    return product


def _multiply_exactly(left: _Elements, right: _Elements) -> _Elements:
    """Multiply matrices over GF(p), exactly, in float64 BLAS.

    The left matrix is split into halves of 15 and 16 bits. A product of a half and an element is an integer below
    2^16·2^31 = 2^47, so a sum of 64 products stays below 2^53. So float64 holds every partial sum exactly, whatever
    the order and the fused operations that BLAS uses.
    """
    total = np.zeros((left.shape[0], right.shape[1]), np.int64)
    for start in range(0, right.shape[0], _EXACT_TERMS):
        terms = slice(start, start + _EXACT_TERMS)
        factors = right[terms].astype(np.float64)
        high = ((left[:, terms] >> 16).astype(np.float64) @ factors).astype(np.int64)
        low = ((left[:, terms] & 0xFFFF).astype(np.float64) @ factors).astype(np.int64)
        # below 2^31 + 2^47 + 2^53, within the domain of `_reduce_mod_p`
        total = _reduce_mod_p(total + (_reduce_mod_p(high) << 16) + low)
    return total


def _reduce_mod_p(values: _Elements) -> _Elements:
    """Reduce integers in 0 … 2^62 − 1 mod p = 2^31 − 1: 2^31 is 1, so the high bits are added to the low ones."""
    values = (values & LIMB_PRIME) + (values >> 31)  # ≤ 2p
    values = (values & LIMB_PRIME) + (values >> 31)  # ≤ p: 2p itself becomes p − 1 + 1
    return (values + ((values + 1) >> 31)) & LIMB_PRIME  # p becomes 0
