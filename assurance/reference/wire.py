"""The bytes of the secure sum, version 4: hashes and trees, signatures, encoding, masks, shares.

A second implementation, written from the specification alone (docs/protocol): sections are those of its pages, and the messages
and structs of its protocol.json drive the codec. A message or struct is a named tuple in `M`, an id a `str`, a list a `tuple`.
"""

import json
import re
import struct
from collections import namedtuple
from contextlib import suppress
from functools import cache
from hashlib import sha256
from io import BytesIO
from operator import add, mul
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**31 - 1
FOLDER = Path(__file__).parents[2] / "docs" / "protocol"
SPECIFICATION: Any = json.loads((FOLDER / "protocol.json").read_text("utf-8"))
CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"  # and lone surrogates
# A type's name, its bits or bytes, its limit, its items, whether they ascend.
PARTS = cache(re.compile(r"([A-Za-z]+)(\d*)(?:≤(\d+))?(?: (\S+?))?(↑?)$").findall)
M = SimpleNamespace()
KINDS, TYPES = dict[str, int](), dict[str, list[str]]()  # message → kind; message or struct → types of its fields
SIGNERS = dict[str, tuple[str, str]]()  # message or header → its signer, and the tag
for _form in (*SPECIFICATION["messages"], *SPECIFICATION["structs"]):
    _name, _fields = _form["name"], _form["fields"]
    _tuple: Any = namedtuple  # noqa: PYI024 - its fields are data
    setattr(M, _name, _tuple(_name, [re.sub(r"\W", "_", each["name"]) for each in _fields]))
    TYPES[_name] = [each["type"].replace(",", "").replace("2^20", "1048576") for each in _fields]
    KINDS.update((_name, int(_form[key])) for key in _form if key == "kind")
    SIGNERS.update(
        (_name, each)
        for last in _fields[-1:]
        for each in re.findall(r'^([\w ]+), "?([a-z]*)', last.get("note", "")[: 99 * (last["type"] == "B64")])
    )
SIGNERS["RevealSummary"] = SIGNERS["Reveal"]  # "as Reveal"


class Refused(Exception):  # noqa: N818 - the page's word
    """A refusal: the specification's cause, then what it names."""


def demand(condition: object, cause: str, *named: Any) -> None:
    if not condition:
        raise Refused(cause, *named)


def u(bits: int, value: int) -> bytes:
    return value.to_bytes(bits // 8, "little")


def raw(part: Any) -> bytes:  # an id's bytes, or the fields of a message or struct without a header
    if isinstance(part, bytes):
        return part
    if isinstance(part, tuple):
        return b"".join(map(_write, TYPES[type(part).__name__], part))
    return part.encode() if isinstance(part, str) else bytes(part)


def info(tag: str, *parts: Any) -> bytes:
    counted = [len(each).to_bytes(8, "little") + each for each in map(raw, parts)]
    return b"".join([b"veilsum/4/%s\0" % tag.encode(), *counted])


def H(tag: str, *parts: Any) -> bytes:  # noqa: N802 - the page's name
    return sha256(info(tag, *parts)).digest()


def tree(leaves: Any, index: int = 0) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the Merkle root over the leaves, and the path of one leaf."""
    level, siblings = [H("merkle-leaf", leaf) for leaf in leaves or [b""]], list[bytes]()
    count = u(64, len(level))
    while level[1:]:
        siblings += level[index ^ 1 : (index ^ 1) + 1]
        pairs, index = (level[i : i + 2] for i in range(0, len(level), 2)), index // 2
        level = [H("merkle-node", *pair) if pair[1:] else pair[0] for pair in pairs]
    return H("merkle-root", count, level[0]), tuple(siblings)


def root(leaves: Any) -> bytes:
    return tree([*leaves])[0]


def climb(leaf: bytes, index: int, count: int, siblings: Any) -> bytes:
    """Return the root above the `index`-th of `count` leaves; a path of the wrong length gives no tree's root."""
    node, last, left = H("merkle-leaf", leaf), count - 1, list(siblings)
    while last > 0:
        if index ^ 1 <= last:
            pair = node, left.pop(0) if left else b""
            node = H("merkle-node", *(pair[::-1] if index % 2 else pair))
        index, last = index // 2, last // 2
    return b"" if left else H("merkle-root", u(64, count), node)


def _write(kind: str, value: Any) -> bytes:
    base, width, _, item, _ = PARTS(kind)[0]
    if item:
        return u(32, len(value)) + b"".join(_write(item, each) for each in value)
    if base in {"u", "f"}:
        return u(int(width), value) if base == "u" else struct.pack("<d", value)
    counted = {"id": 8, "bytes": 32, "text": 32}.get(base)
    return (u(counted, len(raw(value))) if counted else b"") + raw(value)


def _read(data: BytesIO, kind: str) -> Any:
    base, width, limit, item, ascends = PARTS(kind)[0]
    if kind in TYPES:
        value = getattr(M, kind)(*[_read(data, each) for each in TYPES[kind]])
        demand(getattr(value, "attempt", 0) < 8, "wrong-sequence")
    else:
        size = int(width) // (1 if base == "B" else 8) if width else _read(data, "u8" if base == "id" else "u32")
        demand(not limit or size <= int(limit), "oversized")
        value = tuple([_read(data, item) for _ in range(size)]) if item else data.read(size)
        demand(len(value) == size, "truncated")
        value = READERS.get(base, type(value))(value)
    domain = DOMAINS.get("↑" if ascends else kind) or DOMAINS.get(base)
    demand(not domain or domain(value), {"Terms": "terms-refused", "Roster": "duplicate"}.get(kind, "malformed"))
    return value


def ascend(values: Any) -> bool:  # whether ids, or members' messages, ascend without duplicates
    inner = [getattr(each, "header", getattr(each, "card", each)) for each in values]
    names = [getattr(each, "member", each) for each in inner]
    return names == sorted(set(names))


READERS: dict[str, Any] = {
    "u": lambda raw: int.from_bytes(raw, "little"),
    "f": lambda raw: struct.unpack("<d", raw)[0],
    **dict.fromkeys(("id", "text"), lambda raw: raw.decode(errors="surrogateescape")),
}
DOMAINS: dict[str, Any] = {
    "↑": ascend,
    "f": lambda value: abs(value) < float("inf"),
    "id": lambda text: re.fullmatch("[a-z0-9-]{1,64}", text),
    "text": lambda text: not re.search(f"[{CONTROLS}]", text),
    "Roster": lambda roster: len({key for _, key in roster.members}) == len(roster.members),
    "Manifest": lambda manifest: {*manifest.decryptors} <= {*manifest.members},
    "Certificate": lambda c: bool(c.survivors) == (c.reason == "none") and c.reason not in {"erased", "lost"},
    "Link": lambda link: any(link.survivors) == (link.reason == "none"),
    "VoidRequest": lambda request: request.reason not in {"none", "erased", "lost"},
    "SurvivorSet": lambda known: known.survivors,
    "Terms": lambda terms: any(terms.count) or not (any(terms.rows) or terms.withheld + terms.evicted),
}


def outcome(context: bytes, reason: str, survivors: Any = ()) -> bytes:
    return H("survivors", context, *survivors) if reason == "none" else H("void", context, reason)


def encode(message: Any) -> bytes:
    return bytes((4, KINDS[type(message).__name__])) + raw(message)


def decode(message: bytes, *expected: str) -> Any:  # one of the messages expected
    data, names = BytesIO(message), {KINDS[name]: name for name in expected}
    version, kind = _read(data, "u8"), _read(data, "u8")
    demand(version == 4, "unknown-version")
    demand(kind in names, "unknown-message")
    value = _read(data, names[kind])
    demand(not data.read(1), "left-over-bytes")
    return value


def signable(message: Any) -> bytes:
    """Return what a message's signer signs; for a study, its name."""
    if isinstance(message, M.Header):
        return H("upload", *message[:2], H("upload-digest", *message[:-1]))
    if isinstance(message, M.Reveal | M.RevealSummary):
        runs = message.runs_root if isinstance(message, M.RevealSummary) else root(message.runs)
        return H("reveal", *message[:3], root(message.evicted), runs)
    if isinstance(message, M.Pairing):
        return H("pairing", *message[:2], root(message.ciphertexts))
    return H(SIGNERS[type(message).__name__][1], encode(message)[:-64])


def sign(key: Ed25519PrivateKey, name: str, *values: Any) -> Any:
    message = getattr(M, name)(*values, bytes(64))
    return message._replace(signature=key.sign(signable(message)))


def signed(key: bytes, message: Any) -> bool:
    """Return whether a key signed this message."""
    return is_signature(key, message.signature, signable(message))


def is_signature(key: bytes, signature: bytes, digest: bytes) -> bool:
    """Return whether a key signed this digest. Keys of small order sign nothing: their points have these y of the curve."""
    q, y = 2**255 - 19, int.from_bytes(key, "little") % 2**255
    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(key).verify(signature, digest)
        return (y**3 - y) * (121666 * (2 * y**2 - 1) - 121665 * y**4) % q != 0
    return False


def hkdf(secret: bytes, salt: bytes, tag: str, *parts: Any) -> bytes:
    return HKDF(SHA256(), 32, salt, info(tag, *parts)).derive(secret)


def mask(total: list[int], bits: int, sign: int, seed: bytes) -> None:  # adds `sign·G(seed)`
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
    """Return the shares of 32 bytes at x = 1 … count; `uniform` draws below p."""
    curves = [[limb, *(uniform() for _ in range(t - 1))] for limb in unpack(secret, 9, 30)]
    powers = ([pow(x, i, P) for i in range(t)] for x in range(1, count + 1))
    return [struct.pack("<9I", *(sum(map(mul, curve, power)) % P for curve in curves)) for power in powers]


def recover(shares: dict[int, bytes]) -> bytes:  # empty if a limb is out of range
    limbs = [0] * 9
    for x, share in shares.items():
        weight = 1
        for z in shares.keys() - {x}:
            weight = weight * z * pow(z - x, -1, P) % P
        limbs = [(limb + weight * word) % P for limb, word in zip(limbs, unpack(share, 9, 32), strict=True)]
    return pack(limbs, 30)[:32] if max(limbs) < 2**30 and limbs[8] < 2**16 else b""
