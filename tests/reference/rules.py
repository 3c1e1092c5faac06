"""What needs no messages: sizes and the graph (§5), keys (§6), packing and shares (§10), least covers (§4.5)."""

import struct
from functools import cache
from math import comb
from operator import add, mul
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.reference.wire import H, demand, info

P = 2**31 - 1


@cache
def least(n: int, marked: int, sample: int, odds: int) -> int:
    """The least `c` with `P[Hyp(n, marked, sample) > c]·odds ≤ 1`."""
    ways = [comb(marked, i) * comb(n - marked, sample - i) for i in range(sample + 1)]
    return next(c for c in range(sample + 1) if sum(ways[c + 1 :]) * odds <= comb(n, sample))


def sizes(roster: Any, m: Any) -> tuple[Any, ...]:
    """A manifest's fields from `a` to `decryptors`."""
    demand(m.h_min >= 3 and m.loss <= 374, "weak-parameters")
    n, lost = len(m.members), len(m.members) * m.loss // 1000

    def drawn(losses: int, odds: int, lost_odds: int) -> Any:
        """The least sample that outweighs the colluders, and so many times the lost, in it."""
        bounds = ((w, least(n, m.a, w, odds), least(n, lost, w, lost_odds)) for w in range(losses, n))
        return (each for each in bounds if n > 200 and each[0] > each[1] + losses * each[2])

    if roster.decryptors:
        decryptors, a_d = set(m.members) & set(roster.decryptors), min(m.a, (len(roster.decryptors) - 1) // 3)
    else:
        size, a_d, _ = next(drawn(2, 1 << 80, 1 << 30), (n, m.a, 0))
        beacon = H("cards", m.cohort, m.cards_root)
        decryptors = set(sorted(m.members, key=lambda each: H("committee", beacon, each))[:size])
    w, _, d_max = next(drawn(1, n << 80, n << 20), (n, 0, 0))
    k, d_max = (2 * w, d_max) if 2 * w < n - 1 and (n > 1000 or 6 * w <= n - 1) else (n - 1, 0)
    n_min, t = max(m.a + m.h_min, (len(roster.members) + m.a) // 2 + 1), (len(decryptors) + a_d) // 2 + 1
    demand(n >= max(3, n_min) and len(decryptors) >= max(2, t), "cohort-too-small")
    return m.a, a_d, m.h_min, n_min, t, k, d_max, m.loss, tuple(sorted(decryptors))


@cache
def ring(m: Any) -> list[str]:
    beacon = H("cards", m.cohort, m.cards_root)
    return sorted(m.members, key=lambda each: H("ring", beacon, each))


@cache
def neighbours(m: Any, member: str) -> tuple[str, ...]:
    """`N(u)`."""
    n, order = len(m.members), ring(m)
    steps = range(-(m.k // 2), m.k // 2 + 1) if m.k < n - 1 else range(n)
    return tuple(sorted({order[(order.index(member) + step) % n] for step in steps} - {member}))


def windows_hold(m: Any, survivors: Any) -> bool:
    lost, n = [each not in survivors for each in ring(m)], len(m.members)
    return m.k == n - 1 or all(sum((lost * 2)[i : i + m.k // 2]) <= m.D_max for i in range(n))


def hkdf(secret: bytes, salt: bytes, tag: str, *parts: Any) -> bytes:
    return HKDF(SHA256(), 32, salt, info(tag, *parts)).derive(secret)


def mask(total: list[int], bits: int, sign: int, seed: bytes) -> None:
    """Adds `sign·G(seed)`."""
    size, code = (4, "I") if bits <= 32 else (8, "Q")
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(size * len(total)))
    total[:] = map(add, total, (sign * word for (word,) in struct.iter_unpack(f"<{code}", stream)))


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def pack(values: list[int], bits: int) -> bytes:
    whole: int = sum(value % 2**bits << i * bits for i, value in enumerate(values))
    return whole.to_bytes((len(values) * bits + 7) // 8, "little")


def unpack(data: bytes, count: int, bits: int) -> list[int]:
    whole = int.from_bytes(data, "little")
    return [(whole >> i * bits) % 2**bits for i in range(count)]


def split(secret: bytes, t: int, count: int, uniform: Any) -> list[bytes]:
    """The shares of 32 bytes at x = 1 … count; `uniform` draws below p."""
    limbs = unpack(secret, 9, 30)
    curves = [[limb, *(uniform() for _ in range(t - 1))] for limb in limbs]
    powers = ([pow(x, i, P) for i in range(t)] for x in range(1, count + 1))
    return [struct.pack("<9I", *(sum(map(mul, curve, power)) % P for curve in curves)) for power in powers]


def recover(shares: dict[int, bytes]) -> bytes:
    """What the shares at these x lead to; empty if a limb is out of range."""
    limbs = [0] * 9
    for x, share in shares.items():
        weight = 1
        for z in shares.keys() - {x}:
            weight = weight * z * pow(z - x, -1, P) % P
        limbs = [(limb + weight * word) % P for limb, word in zip(limbs, unpack(share, 9, 32), strict=True)]
    return pack(limbs, 30)[:32] if max(limbs) < 2**30 and limbs[8] < 2**16 else b""


def matching(edges: Any, ranked: list[str]) -> set[str]:
    """Both ends of disjoint edges: each member with the first of its neighbours that is left."""
    taken = set[str]()
    for member in ranked:
        free = [each for each in ranked if {member, each} in edges and not taken & {member, each}]
        taken |= {member, free[0]} if free else set()
    return taken


def least_cover(edges: Any, ranked: list[str]) -> set[str]:
    """The first of the smallest; where that takes too many branchings, a matching (§4.5, rules 2 to 4)."""
    best, branches, branchings = set(ranked), [set[str]()], 0
    while branches:
        gone = branches.pop()
        left = {edge for edge in edges if not edge & gone}
        near = {each: set().union(*(edge for edge in left if each in edge)) - {each} for each in ranked}
        if lone := [each for each in ranked if len(near[each]) == 1]:
            branches.append(gone | near[lone[0]])
        elif not left:
            best = min(best, gone, key=len)
        elif len(gone) + len(matching(left, ranked)) // 2 < len(best):
            branchings += 1
            hub = max(ranked, key=lambda each: len(near[each]))
            branches += [gone | near[hub], gone | {hub}]
    return best if branchings * len(edges) <= 10**6 else matching(edges, ranked)
