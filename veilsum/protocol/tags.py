"""Domain separation: the table of all tags, and the hash that uses them (wire: Hashes)."""

import hashlib
from enum import Enum

PROTOCOL_VERSION = 4


class Tag(bytes, Enum):
    """The purpose of a hash or a derived key. Each tag ends in a zero byte, so none is a prefix of another."""

    ROSTER = b"veilsum/4/roster\0"
    COHORT = b"veilsum/4/cohort\0"
    CARD = b"veilsum/4/card\0"
    MANIFEST = b"veilsum/4/manifest\0"
    TERMS = b"veilsum/4/terms\0"
    LINK = b"veilsum/4/link\0"
    CONTEXT = b"veilsum/4/ctx\0"
    OPENING = b"veilsum/4/opening\0"
    MLKEM_KEY = b"veilsum/4/mlkem-key\0"
    PAIRING = b"veilsum/4/pairing\0"
    CIPHERTEXT = b"veilsum/4/ciphertext\0"
    PAIR_MASK = b"veilsum/4/pair-mask\0"
    PAIR_BOX = b"veilsum/4/pair-box\0"
    RATCHET = b"veilsum/4/ratchet\0"
    MASK_SEED = b"veilsum/4/mask-seed\0"
    BOX_KEY = b"veilsum/4/box-key\0"
    COMMIT_SELF = b"veilsum/4/commit-self\0"
    COMMIT_EDGE = b"veilsum/4/commit-edge\0"
    COMMIT_SHARE = b"veilsum/4/commit-share\0"
    MERKLE_LEAF = b"veilsum/4/merkle-leaf\0"
    MERKLE_NODE = b"veilsum/4/merkle-node\0"
    MERKLE_ROOT = b"veilsum/4/merkle-root\0"
    DIGEST = b"veilsum/4/upload-digest\0"
    UPLOAD = b"veilsum/4/upload\0"
    DELIVERIES = b"veilsum/4/deliveries\0"
    RECEIPT = b"veilsum/4/receipt\0"
    SURVIVORS = b"veilsum/4/survivors\0"
    VOID = b"veilsum/4/void\0"
    VOTE = b"veilsum/4/vote\0"
    REFUSAL = b"veilsum/4/refusal\0"
    REVEAL = b"veilsum/4/reveal\0"
    RESULT = b"veilsum/4/result\0"
    CARDS = b"veilsum/4/cards\0"
    RING = b"veilsum/4/ring\0"
    COMMITTEE = b"veilsum/4/committee\0"
    PRIORITY = b"veilsum/4/priority\0"
    ERASED = b"veilsum/4/erased\0"
    LOST = b"veilsum/4/lost\0"
    TRANSCRIPT = b"veilsum/4/transcript\0"
    STUDY = b"veilsum/4/study\0"
    QUESTION = b"veilsum/4/question\0"
    APPROVAL = b"veilsum/4/approval\0"
    RECORD = b"veilsum/4/record\0"
    ROW = b"veilsum/4/row\0"
    HELD_OUT = b"veilsum/4/held-out\0"
    JUDGED = b"veilsum/4/judged\0"
    AUDIT = b"veilsum/4/audit\0"


def hash_fields(tag: Tag, *fields: bytes) -> bytes:
    """Compute H(tag, f1…fm): SHA-256 over the tag, then each field after its 8-byte little-endian length."""
    return hashlib.sha256(info(tag, *fields)).digest()


def info(tag: Tag, *fields: bytes) -> bytes:
    """Build the `info` of a key derivation: the tag and its fields, encoded unambiguously; `hash_fields` hashes it."""
    return tag + b"".join([len(f).to_bytes(8, "little") + f for f in fields])
