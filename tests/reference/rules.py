"""What both sides compute: sizes (§5), keys and masks (§6), hashes (§4), packing and shares (§10), the cover (§4.5)."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count
from math import comb
from operator import mul
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.reference.wire import H, M, demand, fields, info, u

P = 2**31 - 1
Edge = frozenset[str]


@cache
def least(n: int, marked: int, sample: int, odds: int) -> int:
    """The least `c` with `P[Hyp(n, marked, sample) > c]·odds ≤ 1`."""
    ways = [comb(marked, i) * comb(n - marked, sample - i) for i in range(sample + 1)]
    return next(c for c in range(sample + 1) if sum(ways[c + 1 :]) * odds <= comb(n, sample))


def sizes(roster: Any, m: Any) -> tuple[Any, ...]:
    """A manifest's fields from `a` to `decryptors`."""
    demand(m.h_min >= 3 and m.loss <= 374, "weak-parameters")
    n, lost, everyone = len(m.members), len(m.members) * m.loss // 1000, m.members

    def drawn(weight: int, a_bits: int, lost_bits: int) -> Iterator[tuple[int, int, int]]:
        bounds = ((w, least(n, m.a, w, a_bits), least(n, lost, w, lost_bits)) for w in range(weight, n))
        return ((w, c, d) for w, c, d in bounds if n > 200 and w >= c + weight * d + 1)

    if roster.decryptors:
        decryptors = tuple(each for each in everyone if each in roster.decryptors)
        a_d = min(m.a, (len(roster.decryptors) - 1) // 3)
    else:
        size, a_d, _ = next(drawn(2, 1 << 80, 1 << 30), (n, m.a, 0))
        ranked = sorted(everyone, key=lambda each: H("committee", H("cards", m.cohort, m.cards_root), each))
        decryptors = tuple(sorted(ranked[:size]))
    w, _, d_max = next(drawn(1, n << 80, n << 20), (n, 0, 0))
    sparse = 2 * w < n - 1 and (n > 1000 or 6 * w <= n - 1)
    n_min, t = max(m.a + m.h_min, (len(roster.members) + m.a) // 2 + 1), (len(decryptors) + a_d) // 2 + 1
    demand(n >= max(3, n_min) and len(decryptors) >= max(2, t), "cohort-too-small")
    return m.a, a_d, m.h_min, n_min, t, *((2 * w, d_max) if sparse else (n - 1, 0)), m.loss, decryptors


@cache
def ring(m: Any) -> list[str]:
    beacon = H("cards", m.cohort, m.cards_root)
    return sorted(m.members, key=lambda each: H("ring", beacon, each))


def neighbours(m: Any, member: str) -> tuple[str, ...]:
    """`N(u)`."""
    n, order = len(m.members), ring(m)
    steps = range(-(m.k // 2), m.k // 2 + 1) if m.k < n - 1 else range(n)
    return tuple(sorted({order[(order.index(member) + step) % n] for step in steps} - {member}))


def windows_hold(m: Any, survivors: Sequence[str]) -> bool:
    lost, n = [each not in survivors for each in ring(m)], len(m.members)
    return m.k == n - 1 or all(sum((lost * 2)[i : i + m.k // 2]) <= m.D_max for i in range(n))


def hkdf(secret: bytes, salt: bytes, tag: str, *parts: bytes | str) -> bytes:
    return HKDF(SHA256(), 32, salt, info(tag, *parts)).derive(secret)


def box_key(key: bytes, header: Any, decryptor: str) -> bytes:
    return hkdf(key, header.context + header.salt, "box-key", header.member, decryptor)


def check_points(cards: Iterable[Any]) -> None:
    keys = [int.from_bytes(key, "little") % 2**255 % (2**255 - 19) for card in cards for key in card[2:4]]
    demand(len(keys) == len(set(keys)), "duplicate")


def mask(total: list[int], bits: int, sign: int, seed: bytes) -> None:
    """Adds `sign·G(seed)`."""
    size, code = (4, "I") if bits <= 32 else (8, "Q")
    raw = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(size * len(total)))
    total[:] = map(int.__add__, total, (sign * word for (word,) in struct.iter_unpack(f"<{code}", raw)))


def commit_secret(context: bytes, owner: str, other: str, secret: bytes) -> bytes:
    """Of `b_u` if `other` is empty, else of `r_uv`."""
    low, high = sorted((owner, other))
    return (
        H("commit-edge", context, low, high, secret) if other else H("commit-self", context, owner, secret)
    )[:16]


def commit_share(context: bytes, dealer: str, decryptor: str, index: int, share: bytes) -> bytes:
    return H("commit-share", context, dealer, decryptor, u(32, index), share)[:16]


def family(terms: Any) -> str:
    return "indicator" if terms.statistic == "indicator" else "noisy" if terms.noise else "exact"


def survivor(header: Any) -> Any:
    return M.Survivor(*header[1:4], H("upload-digest", *header[:-1]))


def delivered(context: bytes, headers: Iterable[Any]) -> bytes:
    return H("deliveries", context, *(survivor(header).digest for header in headers))


def outcome(context: bytes, reason: str, survivors: Iterable[Any]) -> bytes:
    voted = H("survivors", context, *map(fields, survivors))
    return voted if reason == "none" else H("void", context, reason)


def closing(context: bytes, reason: str, sets: Iterable[Any]) -> bytes:
    return H("closing", context, reason, *(outcome(context, "none", each.survivors) for each in sets))


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def pack(values: Sequence[int], bits: int) -> bytes:
    digits = "".join(f"{value % 2**bits:0{bits}b}" for value in reversed(values))
    return int(digits, 2).to_bytes((len(digits) + 7) // 8, "little")


def unpack(data: bytes, count: int, bits: int) -> list[int]:
    digits = f"{int.from_bytes(data, 'little'):0{count * bits}b}"
    return [int(digits[end - bits : end], 2) for end in range(len(digits), len(digits) - count * bits, -bits)]


def split(secret: bytes, t: int, count: int, uniform: Callable[[], int]) -> list[bytes]:
    """The shares of 32 bytes at x = 1 … count; `uniform` draws below p."""
    whole = int.from_bytes(secret, "little")
    curves = [[whole >> 30 * i & (2**30 - 1), *(uniform() for _ in range(t - 1))] for i in range(9)]
    powers = ([pow(x, i, P) for i in range(t)] for x in range(1, count + 1))
    return [struct.pack("<9I", *(sum(map(mul, curve, power)) % P for curve in curves)) for power in powers]


def recover(shares: Mapping[int, bytes]) -> bytes:
    """What the shares at these x lead to; empty if a limb is out of range."""
    limbs = [0] * 9
    for x, share in shares.items():
        weight = 1
        for z in shares.keys() - {x}:
            weight = weight * z * pow(z - x, -1, P) % P
        words = struct.unpack("<9I", share)
        limbs = [(limb + weight * word) % P for limb, word in zip(limbs, words, strict=True)]
    fits = max(limbs) < 2**30 and limbs[8] < 2**16
    return sum(limb << 30 * i for i, limb in enumerate(limbs)).to_bytes(32, "little") if fits else b""


def cover(context: bytes, conflicts: set[Edge], complaints: set[tuple[str, str]]) -> set[str]:
    """The members dropped; a conflict joins two dealers, a complaint is (dealer, decryptor)."""
    edges, dropped = conflicts | {frozenset(each) for each in complaints}, set[str]()
    while edges:
        part = {next(iter(edges))}
        while more := {edge for edge in edges - part if edge & set(chain(*part))}:
            part |= more
        edges -= part
        lone = {dealer for dealer, decryptor in complaints if {dealer, decryptor} in part}
        ranked = sorted(set(chain(*part)), key=lambda each: H("priority", context, each))
        if len(part) == len(lone) == 1 and not part & conflicts:
            dropped |= lone
        elif (best := _least_cover(part, ranked, count(1))) is not None:
            dropped |= best
        else:
            for member in ranked:
                pairs = [{member, each} for each in ranked if {member, each} in part and each not in dropped]
                dropped |= pairs[0] if pairs and member not in dropped else set()
    return dropped


def _least_cover(edges: set[Edge], ranked: Sequence[str], branchings: Iterator[int]) -> set[str] | None:
    near = {each: set(chain(*(edge for edge in edges if each in edge))) - {each} for each in ranked}
    if not edges:
        return set()
    choices = [near[each] for each in ranked if len(near[each]) == 1][:1]
    if not choices:
        if next(branchings) > 10_000:
            return None
        hub = max(ranked, key=lambda each: len(near[each]))
        choices = [{hub}, near[hub]]
    left = [{edge for edge in edges if not edge & gone} for gone in choices]
    rests = [_least_cover(rest, ranked, branchings) for rest in left]
    found = [gone | rest for gone, rest in zip(choices, rests, strict=True) if rest is not None]
    return min(found, key=len) if len(found) == len(choices) else None
