"""Files of signing keys: their names, their form, and what is said of a missing or damaged one.

The admin's and the coordinator's files are the 32 bytes of an Ed25519 seed; a member's is its hexadecimal digits. All have mode 0600.
"""

import re
import secrets
from pathlib import Path

from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.system.exposure import refuse_loose_mode
from veilsum.system.files import make_durably

ADMIN_KEY = "admin.key"
COORDINATOR_KEY = "coordinator.key"
IDENTITY_KEY, IDENTITY_CARD = "identity.key", "identity.json"
KEY_SEED_BYTES = 32
_HEX_SEED = re.compile(r"[0-9a-f]{64}")


def create_key(path: Path) -> bool:
    """Write a new key, and return True; return False if the file exists. The first of several writers wins."""
    return make_durably(path, secrets.token_bytes(KEY_SEED_BYTES))


def load_key(path: Path) -> SigningKey:
    """Load what `create_key` wrote. Raises Misuse if it is damaged, or if others can read it."""
    refuse_loose_mode(path)
    seed = path.read_bytes()
    if len(seed) != KEY_SEED_BYTES:
        raise Misuse(
            f"{path} is damaged: {len(seed)} bytes, expected {KEY_SEED_BYTES}; restore it from a backup"
        )
    return SigningKey(seed)


def parse_key(text: str) -> SigningKey:
    """Decode a key from hexadecimal digits. Raises Misuse, without the text, which may be most of a key."""
    digits = text.strip().lower()
    if not _HEX_SEED.fullmatch(digits):
        raise Misuse("expected 64 hexadecimal digits")
    return SigningKey(bytes.fromhex(digits))
