"""The base of all messages: a header with version and kind, and signatures."""

from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from veilsum.protocol.codec import Headed, Signature
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.tags import PROTOCOL_VERSION, Tag, hash_fields

MAX_MEMBERS = 10_000
"""Maximum members of a cohort (protocol §3)."""

MAX_DECRYPTORS = 1_000
"""Maximum decryptors of a cohort (protocol §3)."""

SHARE_BYTES = 36
"""One Shamir share of a 32-byte secret (protocol §10)."""


class Kind(IntEnum):
    """The second byte of every message."""

    ROSTER = 1
    CARD = 2
    MANIFEST = 3
    OPENING = 4
    UPLOAD = 5
    DELIVERIES = 6
    RECEIPT = 7
    FREEZE = 8
    VOID_REQUEST = 9
    VOTE = 10
    REFUSAL = 11
    CERTIFICATE = 12
    REVEAL = 13
    CARDS = 14
    EVICTIONS = 15
    ERASURE_REQUEST = 16
    ERASED = 17
    ERASURE = 18
    LOST = 19
    DISCLOSURE = 20
    UPLOAD_SUMMARY = 21
    REVEAL_SUMMARY = 22
    CHAIN = 23
    BAD_RUN = 24
    STUDY = 25


class Message(Headed):
    """One message of the protocol."""

    version: ClassVar[int] = PROTOCOL_VERSION


class Signed(Message):
    """A message whose last field is its sender's Ed25519 signature over everything before it."""

    tag: ClassVar[Tag]
    if TYPE_CHECKING:  # each message declares it itself, as its last field
        signature: Signature

    @property
    def digest(self) -> bytes:
        """The signed digest: H(tag, header and fields without the signature)."""
        return hash_fields(
            self.tag, bytes((self.version, self.kind)) + self.encode_fields(without="signature")
        )

    @classmethod
    def make(cls, key: SigningKey, **values: Any) -> Self:
        """Build the message and sign it with `key`."""
        unsigned = cls(**values, signature=bytes(64))
        return cls(**values, signature=key.sign(unsigned.digest))

    def verify(self, public: bytes, signer: str) -> None:
        """Verify the signature under `public`; PeerFault(bad-signature) names `signer`."""
        verify_signature(public, self.signature, self.digest, signer)
