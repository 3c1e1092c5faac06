"""Domain separation: the one table of tags, and the one hash that uses them (protocol §2)."""

import hashlib
from enum import Enum

PROTOCOL_VERSION = 2


class Tag(bytes, Enum):
    """What a hash or a derived key is for. Each ends in a zero byte, so no tag begins another."""

    ROSTER = b"veilsum/2/roster\0"
    COHORT = b"veilsum/2/cohort\0"
    CARD = b"veilsum/2/card\0"
    MANIFEST = b"veilsum/2/manifest\0"
    TERMS = b"veilsum/2/terms\0"
    LAYOUT = b"veilsum/2/layout\0"
    LINK = b"veilsum/2/link\0"
    CONTEXT = b"veilsum/2/ctx\0"
    OPENING = b"veilsum/2/opening\0"
    PAIR_MASK = b"veilsum/2/pair-mask\0"
    PAIR_BOX = b"veilsum/2/pair-box\0"
    RATCHET = b"veilsum/2/ratchet\0"
    MASK_SEED = b"veilsum/2/mask-seed\0"
    BOX_KEY = b"veilsum/2/box-key\0"
    COMMIT_SELF = b"veilsum/2/commit-self\0"
    COMMIT_EDGE = b"veilsum/2/commit-edge\0"
    COMMIT_SHARE = b"veilsum/2/commit-share\0"
    MERKLE_LEAF = b"veilsum/2/merkle-leaf\0"
    MERKLE_NODE = b"veilsum/2/merkle-node\0"
    MERKLE_ROOT = b"veilsum/2/merkle-root\0"
    LINEAGE = b"veilsum/2/lineage\0"
    RECORDS = b"veilsum/2/records\0"
    DIGEST = b"veilsum/2/upload-digest\0"
    UPLOAD = b"veilsum/2/upload\0"
    DELIVERIES = b"veilsum/2/deliveries\0"
    RECEIPT = b"veilsum/2/receipt\0"
    SURVIVORS = b"veilsum/2/survivors\0"
    VOID = b"veilsum/2/void\0"
    VOTE = b"veilsum/2/vote\0"
    REFUSAL = b"veilsum/2/refusal\0"
    CLOSING = b"veilsum/2/closing\0"
    REVEAL = b"veilsum/2/reveal\0"
    RESULT = b"veilsum/2/result\0"
    CARDS = b"veilsum/2/cards\0"
    RING = b"veilsum/2/ring\0"
    COMMITTEE = b"veilsum/2/committee\0"
    PRIORITY = b"veilsum/2/priority\0"
    EXCEPTION = b"veilsum/2/exception\0"
    REPORT = b"veilsum/2/report\0"
    LOST = b"veilsum/2/lost\0"
    TRANSCRIPT = b"veilsum/2/transcript\0"
    HELPER_CARD = b"veilsum/2/helper-card\0"
    HELPER_MANIFEST = b"veilsum/2/helper-manifest\0"
    HELPER_OPENING = b"veilsum/2/helper-opening\0"
    HELPER_CONTEXT = b"veilsum/2/helper-ctx\0"
    HELPER_BOX = b"veilsum/2/helper-box\0"
    HELPER_SEED = b"veilsum/2/helper-seed\0"
    HELPER_UPLOAD = b"veilsum/2/helper-upload\0"
    HELPER_DIGEST = b"veilsum/2/helper-digest\0"
    HELPER_RECEIPT = b"veilsum/2/helper-receipt\0"
    HELPER_VOTE = b"veilsum/2/helper-vote\0"
    AUDIT = b"veilsum/2/audit\0"
    HELPER_SUMS = b"veilsum/2/helper-sums\0"


def hash_fields(tag: Tag, *fields: bytes) -> bytes:
    """H(tag, f1…fm): SHA-256 over the tag and each field behind its 8-byte little-endian length."""
    return hashlib.sha256(info(tag, *fields)).digest()


def info(tag: Tag, *fields: bytes) -> bytes:
    """The `info` of a key derivation: the tag and its fields, unambiguous without hashing; `hash_fields` hashes it."""
    return tag + b"".join([len(f).to_bytes(8, "little") + f for f in fields])
