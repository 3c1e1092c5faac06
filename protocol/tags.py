"""Domain separation: the one table of tags, and the one hash that uses them (protocol §2)."""

import hashlib
from enum import Enum

PROTOCOL_VERSION = 1


class Tag(bytes, Enum):
    """What a hash or a derived key is for. Each ends in a zero byte, so no tag begins another."""

    ROSTER = b"veilsum/1/roster\0"
    COHORT = b"veilsum/1/cohort\0"
    CARD = b"veilsum/1/card\0"
    MANIFEST = b"veilsum/1/manifest\0"
    TERMS = b"veilsum/1/terms\0"
    LAYOUT = b"veilsum/1/layout\0"
    LINK = b"veilsum/1/link\0"
    CONTEXT = b"veilsum/1/ctx\0"
    OPENING = b"veilsum/1/opening\0"
    PAIR_MASK = b"veilsum/1/pair-mask\0"
    PAIR_BOX = b"veilsum/1/pair-box\0"
    RATCHET = b"veilsum/1/ratchet\0"
    MASK_SEED = b"veilsum/1/mask-seed\0"
    BOX_KEY = b"veilsum/1/box-key\0"
    COMMIT_SELF = b"veilsum/1/commit-self\0"
    COMMIT_EDGE = b"veilsum/1/commit-edge\0"
    COMMIT_SHARE = b"veilsum/1/commit-share\0"
    MERKLE_LEAF = b"veilsum/1/merkle-leaf\0"
    MERKLE_NODE = b"veilsum/1/merkle-node\0"
    MERKLE_ROOT = b"veilsum/1/merkle-root\0"
    LINEAGE = b"veilsum/1/lineage\0"
    RECORDS = b"veilsum/1/records\0"
    DIGEST = b"veilsum/1/upload-digest\0"
    UPLOAD = b"veilsum/1/upload\0"
    RECEIPT = b"veilsum/1/receipt\0"
    SURVIVORS = b"veilsum/1/survivors\0"
    VOID = b"veilsum/1/void\0"
    VOTE = b"veilsum/1/vote\0"
    REFUSAL = b"veilsum/1/refusal\0"
    CERTIFICATE = b"veilsum/1/certificate\0"
    REVEAL = b"veilsum/1/reveal\0"
    RESULT = b"veilsum/1/result\0"


def hash_fields(tag: Tag, *fields: bytes) -> bytes:
    """H(tag, f1…fm): SHA-256 over the tag and each field behind its 8-byte little-endian length."""
    return hashlib.sha256(info(tag, *fields)).digest()


def info(tag: Tag, *fields: bytes) -> bytes:
    """The `info` of a key derivation: the tag and its fields, unambiguous without hashing; `hash_fields` hashes it."""
    return tag + b"".join([len(f).to_bytes(8, "little") + f for f in fields])
