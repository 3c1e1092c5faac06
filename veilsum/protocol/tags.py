"""Domain separation: the table of all tags, and the hash that uses them (protocol §2)."""

import hashlib
from enum import Enum

PROTOCOL_VERSION = 3


class Tag(bytes, Enum):
    """The purpose of a hash or a derived key. Each tag ends in a zero byte, so none is a prefix of another."""

    ROSTER = b"veilsum/3/roster\0"
    COHORT = b"veilsum/3/cohort\0"
    CARD = b"veilsum/3/card\0"
    MANIFEST = b"veilsum/3/manifest\0"
    TERMS = b"veilsum/3/terms\0"
    LINK = b"veilsum/3/link\0"
    CONTEXT = b"veilsum/3/ctx\0"
    OPENING = b"veilsum/3/opening\0"
    PAIR_MASK = b"veilsum/3/pair-mask\0"
    PAIR_BOX = b"veilsum/3/pair-box\0"
    RATCHET = b"veilsum/3/ratchet\0"
    MASK_SEED = b"veilsum/3/mask-seed\0"
    BOX_KEY = b"veilsum/3/box-key\0"
    COMMIT_SELF = b"veilsum/3/commit-self\0"
    COMMIT_EDGE = b"veilsum/3/commit-edge\0"
    COMMIT_SHARE = b"veilsum/3/commit-share\0"
    MERKLE_LEAF = b"veilsum/3/merkle-leaf\0"
    MERKLE_NODE = b"veilsum/3/merkle-node\0"
    MERKLE_ROOT = b"veilsum/3/merkle-root\0"
    DIGEST = b"veilsum/3/upload-digest\0"
    UPLOAD = b"veilsum/3/upload\0"
    DELIVERIES = b"veilsum/3/deliveries\0"
    RECEIPT = b"veilsum/3/receipt\0"
    SURVIVORS = b"veilsum/3/survivors\0"
    VOID = b"veilsum/3/void\0"
    VOTE = b"veilsum/3/vote\0"
    REFUSAL = b"veilsum/3/refusal\0"
    REVEAL = b"veilsum/3/reveal\0"
    RESULT = b"veilsum/3/result\0"
    CARDS = b"veilsum/3/cards\0"
    RING = b"veilsum/3/ring\0"
    COMMITTEE = b"veilsum/3/committee\0"
    PRIORITY = b"veilsum/3/priority\0"
    ERASED = b"veilsum/3/erased\0"
    LOST = b"veilsum/3/lost\0"
    TRANSCRIPT = b"veilsum/3/transcript\0"
    STUDY = b"veilsum/3/study\0"
    QUESTION = b"veilsum/3/question\0"
    APPROVAL = b"veilsum/3/approval\0"
    RECORD = b"veilsum/3/record\0"
    ROW = b"veilsum/3/row\0"
    AUDIT = b"veilsum/3/audit\0"


def hash_fields(tag: Tag, *fields: bytes) -> bytes:
    """Compute H(tag, f1…fm): SHA-256 over the tag, then each field after its 8-byte little-endian length."""
    return hashlib.sha256(info(tag, *fields)).digest()


def info(tag: Tag, *fields: bytes) -> bytes:
    """Build the `info` of a key derivation: the tag and its fields, encoded unambiguously; `hash_fields` hashes it."""
    return tag + b"".join([len(f).to_bytes(8, "little") + f for f in fields])
