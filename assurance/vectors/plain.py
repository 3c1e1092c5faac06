"""The vectors' functions over again, in plain integers and hashes: no line of `protocol` is run here.

Each takes a case's inputs as JSON has them and returns its outputs; `Refused` carries the cause.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from assurance.reference.study import canonical

P = 2**31 - 1
Case = Mapping[str, Any]


class Refused(Exception):  # noqa: N818 - the page's word
    """What must not be accepted; its one argument is the cause."""


def info(tag: str, *fields: bytes) -> bytes:
    parts = [b"veilsum/3/" + tag.encode() + b"\0"]
    for field in fields:
        parts += [len(field).to_bytes(8, "little"), field]
    return b"".join(parts)


def h(tag: str, *fields: bytes) -> bytes:
    return hashlib.sha256(info(tag, *fields)).digest()


def verify(public: bytes, signature: bytes, digest: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except InvalidSignature as error:
        raise Refused("bad-signature") from error


def hkdf(secret: bytes, salt: bytes, context: bytes) -> str:
    return HKDF(SHA256(), 32, salt, context).derive(secret).hex()


def _bytes(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def _ids(case: Case, *names: str) -> list[bytes]:
    return [case[name].encode() for name in names]


# Keys


def pair_key(case: Case) -> Case:
    private, public, cohort, manifest = _bytes(case, "private", "public", "cohort", "manifest_hash")
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise Refused("low-order-point") from error
    context = info(case["purpose"], cohort, *_ids(case, "low", "high"))
    return {"shared": shared.hex(), "key": hkdf(shared, manifest, context)}


def ratchet(case: Case) -> Case:
    key, cohort = _bytes(case, "key", "cohort")
    return {"key": hkdf(key, b"", info("ratchet", cohort, case["sequence"].to_bytes(8, "little")))}


def mask_seed(case: Case) -> Case:
    key, context = _bytes(case, "key", "context")
    return {"seed": hkdf(key, context, info("mask-seed", *_ids(case, "low", "high")))}


def box_key(case: Case) -> Case:
    key, context, salt = _bytes(case, "key", "context", "salt")
    return {"key": hkdf(key, context + salt, info("box-key", *_ids(case, "dealer", "decryptor")))}


def commitment(case: Case) -> Case:
    context, secret = _bytes(case, "context", "secret")
    fields = [name.encode() for name in case["members"]]
    fields += [case["index"].to_bytes(4, "little")] if "index" in case else []
    return {"commitment": h(case["purpose"], context, *fields, secret)[:16].hex()}


# Hashes


def hashed(case: Case) -> Case:
    """H over fields that stand there as they are."""
    return {"hash": h(case["tag"], *map(bytes.fromhex, case["fields"])).hex()}


def merkle(case: Case) -> Case:
    leaves = [h("merkle-leaf", bytes.fromhex(leaf)) for leaf in case["leaves"]]
    count = len(leaves).to_bytes(8, "little")
    return {
        "root": h("merkle-root", count, _top(leaves)).hex(),
        "paths": [[each.hex() for each in _path(leaves, index)] for index in range(len(leaves))],
    }


def _split(count: int) -> int:
    """The largest power of two below: RFC 6962 §2.1."""
    return 1 << (count - 1).bit_length() - 1


def _top(nodes: Sequence[bytes]) -> bytes:
    if len(nodes) == 1:
        return nodes[0]
    at = _split(len(nodes))
    return h("merkle-node", _top(nodes[:at]), _top(nodes[at:]))


def _path(nodes: Sequence[bytes], index: int) -> list[bytes]:
    if len(nodes) == 1:
        return []
    at = _split(len(nodes))
    if index < at:
        return [*_path(nodes[:at], index), _top(nodes[at:])]
    return [*_path(nodes[at:], index - at), _top(nodes[:at])]


def merkle_path(case: Case) -> Case:
    """Whether a path holds: by its length, then by its hashes."""
    node, path = h("merkle-leaf", bytes.fromhex(case["leaf"])), [bytes.fromhex(each) for each in case["path"]]
    index, count = case["index"], case["count"]
    if not 0 <= index < count or len(path) != len(_path([b""] * count, index)):
        return {"holds": False}
    turns: list[bool] = []  # from the top down: whether the leaf is on the right
    while count > 1:
        at = _split(count)
        turns.append(index >= at)
        index, count = (index - at, count - at) if index >= at else (index, at)
    for sibling, right in zip(path, reversed(turns), strict=True):
        node = h("merkle-node", sibling, node) if right else h("merkle-node", node, sibling)
    root = h("merkle-root", case["count"].to_bytes(8, "little"), node)
    return {"holds": root.hex() == case["root"]}


# Masks, packing, boxes


def keystream(case: Case) -> Case:
    """AES-256 of the counter, block after block."""
    size = 4 if case["bits"] <= 32 else 8
    start = case["offset"] * size
    encryptor = Cipher(AES256(bytes.fromhex(case["seed"])), ECB()).encryptor()
    blocks = range(start // 16, -(-(start + case["count"] * size) // 16))
    stream = b"".join(encryptor.update(block.to_bytes(16, "big")) for block in blocks)
    stream = stream[start % 16 :]
    return {
        "words": [
            int.from_bytes(stream[i * size : (i + 1) * size], "little") % 2 ** case["bits"]
            for i in range(case["count"])
        ]
    }


def pack(case: Case) -> Case:
    bits, elements = case["bits"], case["elements"]
    total = sum((element % 2**bits) << (i * bits) for i, element in enumerate(elements))
    return {"packed": total.to_bytes(-(-len(elements) * bits // 8), "little").hex()}


def unpack(case: Case) -> Case:
    bits, count, packed = case["bits"], case["count"], bytes.fromhex(case["packed"])
    total = int.from_bytes(packed, "little")
    if len(packed) != -(-count * bits // 8) or total >> (count * bits):
        raise Refused("chunk-mismatch")
    words = [total >> (i * bits) & (2**bits - 1) for i in range(count)]
    return {"words": words, "centred": [w - 2**bits if w >> (bits - 1) else w for w in words]}


def masked(case: Case) -> Case:
    """A chunk: its elements, each seed's keystream added or taken off, packed."""
    shared = {key: case[key] for key in ("bits", "offset")} | {"count": len(case["elements"])}
    sums = list(case["elements"])
    for sign, seeds in ((1, case["added"]), (-1, case["subtracted"])):
        for seed in seeds:
            words = keystream({**shared, "seed": seed})["words"]
            sums = [element + sign * word for element, word in zip(sums, words, strict=True)]
    return pack({"bits": case["bits"], "elements": sums})


def box(case: Case) -> Case:
    key, shares, context = _bytes(case, "key", "shares", "context")
    return {"box": AESGCM(key).encrypt(bytes(12), shares, context).hex()}


def open_box(case: Case) -> Case:
    key, sealed, context = _bytes(case, "key", "box", "context")
    try:
        return {"shares": AESGCM(key).decrypt(bytes(12), sealed, context).hex()}
    except (InvalidTag, ValueError) as error:
        raise Refused("box-refused") from error


# Shamir


def deal(case: Case) -> Case:
    rows = case["coefficients"]  # degree 1 first, nine a secret
    limbs = [
        int.from_bytes(bytes.fromhex(secret), "little") >> (30 * limb) & (2**30 - 1)
        for secret in case["secrets"]
        for limb in range(9)
    ]
    shares = []
    for x in range(1, case["holders"] + 1):
        values = [
            (limb + sum(row[i] * pow(x, degree, P) for degree, row in enumerate(rows, 1))) % P
            for i, limb in enumerate(limbs)
        ]
        words = b"".join(value.to_bytes(4, "little") for value in values)
        shares.append([words[i : i + 36].hex() for i in range(0, len(words), 36)])
    return {"shares": shares}


def recover(case: Case) -> Case:
    xs, shares = [position + 1 for position in case["positions"]], [bytes.fromhex(s) for s in case["shares"]]
    if len(set(xs)) != len(xs) or any(len(share) != 36 for share in shares):
        raise Refused("share-invalid")
    rows = [[int.from_bytes(s[i : i + 4], "little") for i in range(0, 36, 4)] for s in shares]
    if any(word >= P for row in rows for word in row):
        raise Refused("share-invalid")
    limbs = []
    for column in zip(*rows, strict=True):
        value = Fraction(0)
        for i, y in enumerate(column):
            term = Fraction(y)
            for j, x in enumerate(xs):
                term *= Fraction(x, x - xs[i]) if i != j else 1
            value += term
        limbs.append(value.numerator * pow(value.denominator, -1, P) % P)
    if any(limb >> 30 for limb in limbs) or limbs[8] >> 16:
        raise Refused("share-invalid")
    return {"secret": sum(limb << (30 * i) for i, limb in enumerate(limbs)).to_bytes(32, "little").hex()}


# Who stands where


def names(case: Case) -> list[str]:
    return [f"m-{i:05}" for i in range(case["members"])]


def ring(case: Case) -> Case:
    beacon, everyone = bytes.fromhex(case["beacon"]), names(case)
    order = sorted(everyone, key=lambda member: h("ring", beacon, member.encode()))
    half, count = case["degree"] // 2, len(order)

    def near(member: str) -> list[str]:
        at = order.index(member)
        return sorted(order[(at + step) % count] for step in range(-half, half + 1) if step)

    chosen = sorted(everyone, key=lambda member: h("committee", beacon, member.encode()))
    return {
        "order": [everyone.index(member) for member in order],
        "neighbours": {member: near(member) for member in case["of"]},
        "committee": sorted(chosen[: case["committee"]]),
    }


def cover(case: Case) -> Case:
    """No fewer would do, and none of them is left: which ones is the page's order, checked where one of them is enough."""
    disputes = [tuple(each["parties"]) for each in case["disputes"]]
    everyone = sorted({party for pair in disputes for party in pair})
    for size in range(len(everyone) + 1):
        covers = [set(c) for c in combinations(everyone, size) if all({*c} & {*pair} for pair in disputes)]
        if covers:
            return {"size": size, "covers": [sorted(each) for each in covers]}
    raise AssertionError(case)


def signed(case: Case) -> Case:
    """An Ed25519 signature over a digest."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["seed"]))
    return {
        "public": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(bytes.fromhex(case["digest"])).hex(),
    }


def record(case: Case) -> Case:
    body = canonical(case["record"])
    return {"body": body.decode(), "digest": h("result", body).hex()}


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    "pair-key": pair_key,
    "ratchet": ratchet,
    "mask-seed": mask_seed,
    "box-key": box_key,
    "commitment": commitment,
    "hash": hashed,
    "merkle": merkle,
    "merkle-path": merkle_path,
    "keystream": keystream,
    "pack": pack,
    "unpack": unpack,
    "masked": masked,
    "box": box,
    "open-box": open_box,
    "deal": deal,
    "recover": recover,
    "ring": ring,
    "signed": signed,
    "record": record,
}
