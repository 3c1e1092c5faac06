"""The bytes of the secure sum, version 2: hashes and trees (§2), the encoding (§3), signatures.

A second implementation, written from docs/protocol.md alone; sections are that page's, and its tables of messages and structs
are the codec's. A message or struct is a named tuple in `M`, an id a `str`, a list a `tuple`.
"""

import math
import re
import struct
from collections import namedtuple
from collections.abc import Iterable, Sequence
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

Q, D = 2**255 - 19, -121665 * pow(121666, -1, 2**255 - 19)  # the field and the constant of Edwards25519
PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
ROW, FIELD = r"(?m)^\| (?:(\d+) \| )?([A-Z]\w+) \| (.+) \|$", r"^(.*?) ?((?:list≤\S+ )?\S+?)(?: \(.*)?$"
M = SimpleNamespace()
KINDS: dict[str, int] = {}
TYPES: dict[str, list[str]] = {}  # message or struct → types of its fields
SIGNERS: dict[str, tuple[str, str]] = {}  # message or header → who signs it, and the tag
for _kind, _name, _row in re.findall(ROW, PAGE):
    _row = re.sub(r"signature( B64)? \(", "signature B64 (", _row).replace(
        " (the fields of RevealSummary)", " RevealSummary"
    )
    _fields = [re.findall(FIELD, each)[0] for each in _row.split(" · ")]
    _tuple: Any = namedtuple  # noqa: PYI024 - its fields are data
    setattr(M, _name, _tuple(_name, [label.replace(" ", "_") or "items" for label, _ in _fields]))
    TYPES[_name] = [kind for _, kind in _fields]
    KINDS.update((_name, int(number)) for number in [_kind] if number)
    SIGNERS.update((_name, each) for each in re.findall(r'B64 \((\w+), (?:tag )?"?([a-z]*)', _row))


class Refused(Exception):  # noqa: N818 - the page's word
    """What must not be accepted: the page's cause, then what it names."""


def demand(condition: object, cause: str, *named: Any) -> None:
    if not condition:
        raise Refused(cause, *named)


def u(bits: int, value: int) -> bytes:
    return value.to_bytes(bits // 8, "little")


def info(tag: str, *parts: bytes | str) -> bytes:
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"veilsum/2/%s\0" % tag.encode() + b"".join(u(64, len(part)) + part for part in raw)


def H(tag: str, *parts: bytes | str) -> bytes:  # noqa: N802 - the page's name
    return sha256(info(tag, *parts)).digest()


def levels(leaves: Iterable[bytes | str]) -> list[list[bytes]]:
    """A Merkle tree from its leaves' hashes to its root."""
    tree = [[H("merkle-leaf", leaf) for leaf in leaves] or [H("merkle-leaf", b"")]]
    while len(below := tree[-1]) > 1:
        pairs = [H("merkle-node", *below[i : i + 2]) for i in range(0, len(below) - 1, 2)]
        tree.append(pairs + below[2 * len(pairs) :])
    return [*tree, [H("merkle-root", u(64, len(tree[0])), tree[-1][0])]]


def root(leaves: Iterable[bytes | str]) -> bytes:
    return levels(leaves)[-1][0]


def path(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    beside = [(level, index >> depth ^ 1) for depth, level in enumerate(levels(leaves)[:-2])]
    return tuple(level[place] for level, place in beside if place < len(level))


def climb(leaf: bytes, index: int, count: int, siblings: Sequence[bytes]) -> bytes:
    """The root above the `index`-th of `count` leaves; empty if the path isn't as long as such a leaf's."""
    node, left, width = H("merkle-leaf", leaf), list(siblings), count
    while width > 1 and (left or index ^ 1 >= width):
        if index ^ 1 < width:
            node = H("merkle-node", *((left.pop(0), node) if index & 1 else (node, left.pop(0))))
        index, width = index // 2, (width + 1) // 2
    return b"" if left or width > 1 else H("merkle-root", u(64, count), node)


def _write(kind: str, value: Any) -> bytes:
    if kind in TYPES:
        return b"".join(map(_write, TYPES[kind], value))
    if kind[0] in "uf":
        return u(int(kind[1:]), value) if kind[0] == "u" else struct.pack("<d", value)
    if kind[0] == "l":
        item = kind.split(" ")[1].removesuffix("↑")
        return u(32, len(value)) + b"".join(_write(item, each) for each in value)
    raw = value.encode() if isinstance(value, str) else value
    return (b"" if kind[0] == "B" else u(8 if kind == "id" else 32, len(raw))) + raw


def fields(value: Any) -> bytes:
    """A message or struct without a header."""
    return _write(type(value).__name__, value)


def _fits(past: Any) -> bool:
    hashes = [H("survivors", past.context, *map(fields, each.survivors)) for each in past.sets]
    return hashes == sorted(set(hashes)) if past.reason == "lost" else len(hashes) == (past.reason == "none")


DOMAINS: dict[str, Any] = {
    "Roster": lambda roster: roster.withhold <= 1,
    "Manifest": lambda m: len(m.caps) == len(m.members) and set(m.decryptors) <= set(m.members),
    "Certificate": lambda c: bool(c.survivors) == (c.reason == "none") and c.reason != "lost",
    "Link": lambda link: link.family in {"exact", "noisy", "indicator"},
    "VoidRequest": lambda request: request.reason not in {"none", "lost"},
    "SurvivorSet": lambda opened: opened.survivors,
    "Past": _fits,
}


def encode(message: Any) -> bytes:
    return bytes((2, KINDS[type(message).__name__])) + fields(message)


def _read(data: BytesIO, kind: str) -> Any:
    if kind in TYPES:
        made = getattr(M, kind)(*[_read(data, each) for each in TYPES[kind]])
        demand(DOMAINS.get(kind, bool)(made), "malformed")
        return made
    head, _, item = kind.removesuffix("↑").partition(" ")
    if kind[0] in "uBf":
        size = int(kind[1:]) // (1 if kind[0] == "B" else 8)
    else:
        size = _read(data, "u8" if kind == "id" else "u32")
        limit = head.partition("≤")[2].replace(",", "") or "255"
        demand(size <= (1 << int(limit[2:]) if "^" in limit else int(limit)), "oversized")
    if item:
        items = tuple([_read(data, item) for _ in range(size)])
        inner = [getattr(each, "header", getattr(each, "card", each)) for each in items if kind.endswith("↑")]
        demand(all(a < b for a, b in pairwise(getattr(each, "member", each) for each in inner)), "malformed")
        return items
    raw = data.read(size)
    demand(len(raw) == size, "truncated")
    if kind[0] in "Bb":
        return raw
    if kind[0] in "uf":
        value = int.from_bytes(raw, "little") if kind[0] == "u" else struct.unpack("<d", raw)[0]
        demand(math.isfinite(value), "malformed")
        return value
    text, pattern = raw.decode(errors="ignore"), "[a-z0-9-]{1,64}" if kind == "id" else "[^\0-\x1f\x7f-\x9f]*"
    demand(text.encode() == raw and re.fullmatch(pattern, text), "malformed")
    return text


def decode(message: bytes, *expected: str) -> Any:
    """One of the messages expected."""
    data = BytesIO(message)
    version, kind = _read(data, "u8"), _read(data, "u8")
    demand(version == 2, "unknown-version")
    demand(kind in {KINDS[name] for name in expected}, "unknown-message")
    value = _read(data, next(name for name in expected if KINDS[name] == kind))
    demand(not data.read(1), "left-over-bytes")
    return value


def _signable(message: Any) -> bytes:
    if isinstance(message, M.Header):
        return H("upload", *message[:4], H("upload-digest", *message[:-1]))
    if isinstance(message, M.Reveal):
        return H("reveal", *message[:3], root(message.evicted), root(message.runs))
    return H(SIGNERS[type(message).__name__][1], encode(message)[:-64])


def sign(key: Ed25519PrivateKey, name: str, *values: Any) -> Any:
    message = getattr(M, name)(*values, bytes(64))
    return message._replace(signature=key.sign(_signable(message)))


def signed(key: bytes, message: Any) -> bool:
    y = int.from_bytes(key, "little") % 2**255 % Q
    if (y**3 - y) % Q == 0 or (D * y**4 + 2 * y**2 - 1) % Q == 0:
        return False  # the key's order divides 8
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(message.signature, _signable(message))
    except (InvalidSignature, ValueError):
        return False
    return True
