"""Shamir sharing, compared with polynomials over Python's integers."""

from collections.abc import Callable
from itertools import combinations
from random import Random

import numpy as np
import pytest

from veilsum.protocol import shamir
from veilsum.protocol.errors import Misuse
from veilsum.protocol.shamir import (
    LIMB_PRIME,
    SHARE_BYTES,
    ShareError,
    check_shares,
    recover_secrets,
    share_secrets,
)

SECRETS = [bytes(32), b"\xff" * 32, bytes(range(32)), Random(1).randbytes(32)]


def limbs_of(secret: bytes) -> list[int]:
    return [int.from_bytes(secret, "little") >> (30 * i) & (2**30 - 1) for i in range(9)]


def share_of(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def words_of(share: bytes) -> list[int]:
    return [int.from_bytes(share[i : i + 4], "little") for i in range(0, len(share), 4)]


def interpolate(points: dict[int, int], at: int) -> int:
    total = 0
    for x, y in points.items():
        weight = 1
        for other in points:
            if other != x:
                weight = weight * (at - other) * pow(x - other, -1, LIMB_PRIME) % LIMB_PRIME
        total += weight * y
    return total % LIMB_PRIME


def scripted(*words: int) -> Callable[[int], bytes]:
    """Make a random source that returns these words, and no more."""
    rest = b"".join(word.to_bytes(4, "little") for word in words)

    def take(size: int) -> bytes:
        nonlocal rest
        taken, rest = rest[:size], rest[size:]
        return taken

    return take


def deal(threshold: int, holders: int, seed: int = 0, secrets: list[bytes] = SECRETS) -> list[bytes]:
    shares = share_secrets(secrets, threshold, holders, Random(seed).randbytes)
    return [row.tobytes() for row in shares]


@pytest.mark.parametrize(("threshold", "holders"), [(2, 2), (2, 4), (3, 5), (4, 6), (6, 7), (7, 7)])
def test_every_t_holders_in_any_order_recover(threshold: int, holders: int) -> None:
    shares = deal(threshold, holders)
    assert recover_secrets(range(holders), shares) == SECRETS  # and more than t
    for chosen in combinations(range(holders), threshold):
        for positions in (chosen, chosen[::-1]):
            assert recover_secrets(positions, [shares[i] for i in positions]) == SECRETS


def test_t_minus_1_shares_fit_every_secret() -> None:
    # Whatever secret one guesses, a share of the last holder exists that makes it the one recovered: t − 1 shares rule
    # out nothing. The other coefficients being uniform, every guess stays equally likely.
    shares = deal(4, 5, secrets=[SECRETS[3]])
    known = {position: words_of(shares[position]) for position in (0, 2, 4)}
    for guess in [*SECRETS, *(Random(i).randbytes(32) for i in range(20))]:
        missing = share_of(
            [
                interpolate({0: limb} | {p + 1: words[i] for p, words in known.items()}, at=2)
                for i, limb in enumerate(limbs_of(guess))
            ]
        )
        positions = [*known, 1]
        assert recover_secrets(positions, [*(shares[p] for p in known), missing]) == [guess]


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_shares_of_one_secret_are_uniform(secret: bytes) -> None:
    shares = share_secrets([secret] * 4000, 3, 4, Random(11).randbytes)
    for holder in shares:
        words = holder.reshape(-1).view("<u4")
        counts = np.bincount(words >> 23, minlength=256)  # 2^31 / 256 values a cell
        expected = words.size / 256
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert 142 < statistic < 368  # five standard deviations about 255


def test_a_draw_of_p_is_drawn_again() -> None:
    # p itself, with the top bit clear and set, twice over for one of them; the secret's polynomials are 0 + c·x
    first = [10, LIMB_PRIME, 30, 0xFFFF_FFFF, 50, 60, 70, 80, 0x8000_0005]
    source = scripted(*first, LIMB_PRIME, 21, 22)
    shares = share_secrets([bytes(32)], 2, 2, source)
    assert words_of(shares[0].tobytes()) == [10, 22, 30, 21, 50, 60, 70, 80, 5]
    assert source(1) == b""


def test_a_random_source_that_runs_dry_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer"):
        share_secrets([bytes(32)], 2, 2, scripted(*range(8)))
    with pytest.raises(ValueError, match="buffer"):
        share_secrets([bytes(32)], 2, 2, scripted(*[LIMB_PRIME] * 2, *range(7), 1))


@pytest.mark.parametrize("terms", [1, 64, 65, 128, 300])
def test_products_of_the_largest_elements_are_exact(terms: int) -> None:
    left = np.full((2, terms), LIMB_PRIME - 1, np.int64)
    left[1] = 0xFFFF  # the largest low half
    right = np.full((terms, 3), LIMB_PRIME - 1, np.int64)
    expected = [[terms % LIMB_PRIME] * 3, [terms * 0xFFFF * (LIMB_PRIME - 1) % LIMB_PRIME] * 3]
    assert shamir.multiply_elements(left, right).tolist() == expected


@pytest.mark.parametrize(
    ("threshold", "holders"),
    [(1, 3), (0, 3), (-1, 3), (4, 3), (2, LIMB_PRIME), (2, 1), (LIMB_PRIME, LIMB_PRIME)],
)
def test_refuses_a_threshold_outside_its_domain(threshold: int, holders: int) -> None:
    with pytest.raises(Misuse, match="threshold"):
        share_secrets(SECRETS, threshold, holders)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_refuses_a_secret_of_another_length(length: int) -> None:
    with pytest.raises(Misuse, match="32 bytes"):
        share_secrets([bytes(32), bytes(length)], 2, 3)


@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        ([0, 0], "twice"),
        ([-1, 0], "outside"),
        ([0, LIMB_PRIME - 1], "outside"),
        ([0], "1 positions"),
        ([0, 1, 2], "3 positions"),
        ([], "0 positions"),
    ],
)
def test_refuses_positions(positions: list[int], reason: str) -> None:
    with pytest.raises(ShareError, match=reason):
        recover_secrets(positions, deal(2, 3)[:2])


def test_the_last_position_that_has_a_point_is_taken() -> None:
    # f = 7 + 5·x, at x = 1 and x = p − 1
    shares = [share_of([12] * 9), share_of([2] * 9)]
    expected = sum(7 << (30 * i) for i in range(9)).to_bytes(32, "little")
    assert recover_secrets([0, LIMB_PRIME - 2], shares) == [expected]


def test_refuses_shares_of_unequal_or_wrong_length() -> None:
    shares = deal(2, 3)
    with pytest.raises(ShareError, match="different numbers"):
        recover_secrets([0, 1], [shares[0], shares[1][:-SHARE_BYTES]])
    with pytest.raises(ShareError, match="don't fill"):
        recover_secrets([0, 1], [shares[0][:-1], shares[1][:-1]])


@pytest.mark.parametrize("word", [LIMB_PRIME, LIMB_PRIME + 1, 2**32 - 1])
@pytest.mark.parametrize("limb", range(9))
def test_refuses_words_that_are_not_canonical(word: int, limb: int) -> None:
    words = [0] * 9
    words[limb] = word
    with pytest.raises(ShareError, match="isn't below p"):
        check_shares(bytes(SHARE_BYTES) + share_of(words))
    with pytest.raises(ShareError, match="isn't below p"):
        recover_secrets([0, 1], [share_of(words), bytes(SHARE_BYTES)])


def test_takes_canonical_shares() -> None:
    check_shares(b"")
    check_shares(share_of([LIMB_PRIME - 1] * 9) + bytes(SHARE_BYTES))
    with pytest.raises(ShareError, match="don't fill"):
        check_shares(bytes(SHARE_BYTES + 1))


@pytest.mark.parametrize(("limb", "limit"), [(0, 2**30), (7, 2**30), (8, 2**16)])
def test_refuses_recovered_limbs_that_no_secret_has(limb: int, limit: int) -> None:
    # the constant polynomial: every share is the limbs themselves
    words = [0] * 9
    words[limb] = limit - 1
    secret = ((limit - 1) << (30 * limb)).to_bytes(32, "little")
    assert recover_secrets([0, 1], [share_of(words)] * 2) == [secret]
    words[limb] = limit
    with pytest.raises(ShareError, match="out of range"):
        recover_secrets([0, 1], [share_of(words)] * 2)
