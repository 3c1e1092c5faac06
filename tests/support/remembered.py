"""A cache of verified signatures. Most messages go to every member, and runs of a state machine repeat each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from veilsum.protocol import identity


class Remembering:
    """A public key that caches the signatures that it has verified."""

    def __init__(self, public: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(public)
        self.verify = lru_cache(1 << 15)(self._key.verify)

    @staticmethod
    @lru_cache(256)
    def from_public_bytes(public: bytes) -> "Remembering":
        """Return the shared instance for this key."""
        return Remembering(public)


@contextmanager
def remembered_signatures() -> Iterator[None]:
    """Make `protocol` verify with caching keys. Signatures that fail are not cached."""
    with patch.object(identity, "Ed25519PublicKey", Remembering):
        yield


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """Cache verified signatures during a test: most tests play the same first messages."""
    with remembered_signatures():
        yield
