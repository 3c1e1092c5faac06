"""Signatures are verified once: most messages go to every member, and a run of a machine repeats the one before."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from veilsum.protocol import identity


class Remembering:
    """A public key that knows which signatures it has verified."""

    def __init__(self, public: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(public)
        self.verify = lru_cache(1 << 15)(self._key.verify)

    @staticmethod
    @lru_cache(256)
    def from_public_bytes(public: bytes) -> "Remembering":
        """The one of this key."""
        return Remembering(public)


@contextmanager
def remembered_signatures() -> Iterator[None]:
    """Have `protocol` verify with keys that remember; a signature that fails is verified each time."""
    with patch.object(identity, "Ed25519PublicKey", Remembering):
        yield


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """Most tests play the same first messages: a signature that was found true is not verified again."""
    with remembered_signatures():
        yield
