"""Kinds and sizes of this mode's messages (helpers H2)."""

from enum import IntEnum

HELPERS = 4
"""Helpers that the roster names, and seeds that a client draws: one for each helper to lack."""

THRESHOLD = 3
"""Votes in a certificate, and cards in a manifest at the least: 2 · 3 > 4 + 1."""

MAX_CLIENTS = 100_000
"""As many as a roster names."""

SEED_BYTES = 32
SEEDS_BYTES = SEED_BYTES * (HELPERS - 1)
"""What one helper holds of one client."""

BOX_BYTES = SEEDS_BYTES + 16
"""Those seeds under AES-256-GCM."""


class HelperKind(IntEnum):
    """The second byte of every message of this mode."""

    CARD = 32
    OPENING = 33
    UPLOAD = 34
    DELIVERIES = 35
    RECEIPT = 36
    FREEZE = 37
    VOID_REQUEST = 38
    VOTE = 39
    REFUSAL = 40
    CERTIFICATE = 41
    SUMS = 42
    LOST = 43
    COUNTED = 44
