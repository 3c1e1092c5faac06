"""Ed25519 signatures at the edges of RFC 8032, where verifiers differ (wire: Signatures)."""

from collections.abc import Callable, Iterator
from hashlib import sha256, sha512
from itertools import count
from typing import Any

Case = dict[str, Any]
Point = tuple[int, int]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
"""The group's order."""
D = -121665 * pow(121666, -1, P) % P
NEUTRAL: Point = (0, 1)


def add(one: Point, other: Point) -> Point:
    """Add two points of the curve (RFC 8032 §5.1.4)."""
    (x, y), (v, w) = one, other
    skew = D * x * v * y * w
    return (x * w + v * y) * pow(1 + skew, -1, P) % P, (y * w + x * v) * pow(1 - skew, -1, P) % P


def multiply(scalar: int, point: Point) -> Point:
    total = NEUTRAL
    for bit in f"{scalar:b}":
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def lift(y: int) -> Point | None:
    """Return the point of this y whose x is even, if the curve has one (RFC 8032 §5.1.3)."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return (P - x if x % 2 else x), y


def encode(point: Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def known(y: int) -> Point:
    """Return the point of a y that the curve has."""
    point = lift(y)
    assert point is not None
    return point


BASE = known(4 * pow(5, -1, P) % P)
ORDER_8 = known(2707385501144840649318225287225658788936804267575313519463743609750303402022)
SECRET, DRAWN = (int.from_bytes(sha512(tag).digest(), "little") % L for tag in (b"secret", b"drawn"))
HONEST = multiply(SECRET, BASE)
MIXED = add(HONEST, ORDER_8)
"""An honest key and a point of order 8: its order is 8·L."""
SIGN = 1 << 255
"""The bit of an encoding that has x's parity."""
SMALL = {
    "order 1": 1,
    "order 1, y not reduced": P + 1,
    "order 1, sign of x set": 1 + SIGN,
    "order 2": P - 1,
    "order 2, sign of x set": P - 1 + SIGN,
    "order 4": 0,
    "order 4, sign of x set": SIGN,
    "order 4, y not reduced": P,
    "order 8": ORDER_8[1],
    "order 8, sign of x set": ORDER_8[1] + SIGN,
    "order 8, other y": P - ORDER_8[1],
    "order 8, other y, sign of x set": P - ORDER_8[1] + SIGN,
}
"""Encodings of the keys under which one signature fits many messages."""


def challenge(commitment: bytes, key: bytes, digest: bytes) -> int:
    return int.from_bytes(sha512(commitment + key + digest).digest(), "little") % L


def digest_with(commitment: bytes, key: bytes, fits: Callable[[int], bool]) -> bytes:
    """Return the first digest whose challenge fits."""
    tried = (sha256(f"digest {number}".encode()).digest() for number in count())
    return next(digest for digest in tried if fits(challenge(commitment, key, digest)))


def case(name: str, key: bytes, digest: bytes, commitment: bytes, scalar: int) -> Case:
    signature = commitment + scalar.to_bytes(32, "little")
    given = {"public": key.hex(), "digest": digest.hex(), "signature": signature.hex()}
    return {"name": name, "function": "verify", "input": given}


def cases() -> Iterator[Case]:
    """Yield signatures that hold, and those that a verifier takes if it leaves out one rule."""
    key, mixed, point = map(encode, (HONEST, MIXED, multiply(DRAWN, BASE)))
    digest = sha256(b"digest").digest()

    def scalar(commitment: bytes, drawn: int, said: bytes = digest, of: bytes = key) -> int:
        return (drawn + challenge(commitment, of, said) * SECRET) % L

    honest = scalar(point, DRAWN)
    yield case("an honest signature", key, digest, point, honest)
    yield case("of another digest", key, sha256(b"other").digest(), point, honest)
    yield case("a scalar plus the group's order", key, digest, point, honest + L)
    yield case("a scalar with its top bit set", key, digest, point, honest + SIGN)
    neutral = encode(NEUTRAL)
    yield case("a point of order 1 under an honest key", key, digest, neutral, scalar(neutral, 0))
    for name in ("order 1, y not reduced", "order 1, sign of x set"):
        odd = SMALL[name].to_bytes(32, "little")
        yield case(f"a point of {name}, under an honest key", key, digest, odd, scalar(odd, 0))
    shifted = encode(add(multiply(DRAWN, BASE), ORDER_8))
    yield case("a point that fits with the cofactor alone", key, digest, shifted, scalar(shifted, DRAWN))
    for name, fits in (
        ("a key of mixed order, hash a multiple of 8", lambda hashed: hashed % 8 == 0),
        ("a key of mixed order that fits with the cofactor alone", lambda hashed: hashed % 8 != 0),
    ):
        said = digest_with(point, mixed, fits)
        yield case(name, mixed, said, point, scalar(point, DRAWN, said, mixed))
    absent = next(y for y in count(2) if lift(y) is None).to_bytes(32, "little")
    yield case("a key that is no point", absent, digest, neutral, 0)
    for name, encoding in SMALL.items():
        small = encoding.to_bytes(32, "little")
        said = digest_with(neutral, small, lambda hashed: hashed % 8 == 0)
        yield case(f"a key of {name}", small, said, neutral, 0)
