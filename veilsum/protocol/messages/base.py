"""The base of all messages: a header with version and kind, and signatures."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Fixed, Headed, Many, Name, Signature
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.tags import PROTOCOL_VERSION, Tag, hash_fields

MAX_MEMBERS = 10_000
"""Maximum members of a cohort (wire: Encoding)."""

MAX_DECRYPTORS = 1_000
"""Maximum decryptors of a cohort (wire: Encoding)."""

SHARE_BYTES = 36
"""One Shamir share of a 32-byte secret (wire: Keys)."""

BOX_TAG_BYTES = 16
"""What sealing adds to a box of shares (wire: Keys)."""

Names = Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
Path = Annotated[tuple[bytes, ...], Many(Fixed(32), 64)]
"""The siblings of a leaf in a Merkle tree (wire: Hashes)."""


class Message(Headed):
    """One message of the protocol."""

    version: ClassVar[int] = PROTOCOL_VERSION
    forms: ClassVar[dict[int, type["Message"]]] = {}


def parse_message(data: bytes | memoryview) -> Message:
    """Parse `data` as exactly one message. Raises PeerFault if it is malformed."""
    if len(data) < 2:
        raise PeerFault(Cause.TRUNCATED, f"{len(data)} bytes are shorter than a header")
    # Check the version first: kinds may have other meanings in other versions.
    if data[0] != PROTOCOL_VERSION:
        raise PeerFault(Cause.UNKNOWN_VERSION, f"version {data[0]}, this side speaks {PROTOCOL_VERSION}")
    form = Message.forms.get(data[1])
    if form is None:
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"protocol version {PROTOCOL_VERSION} has no message of kind {data[1]}"
        )
    return form.from_bytes(data)


class Signed(Message):
    """A message whose last field is its sender's Ed25519 signature over everything before it."""

    tag: ClassVar[Tag]
    if TYPE_CHECKING:  # each message declares it itself, as its last field
        signature: Signature

    def __init_subclass__(cls, *, kind: int | None = None, tag: Tag | None = None) -> None:
        super().__init_subclass__(kind=kind)
        cls.tag = tag or cls.tag

    @property
    def digest(self) -> bytes:
        """The signed digest: H(tag, header and fields without the signature)."""
        return hash_fields(self.tag, self.to_bytes()[: -len(self.signature)])

    @classmethod
    def make_signed(cls, key: SigningKey, **values: Any) -> Self:
        """Build the message and sign it with `key`."""
        unsigned = cls(**values, signature=bytes(64))
        return cls(**values, signature=key.sign(unsigned.digest))

    def verify(self, public: bytes, signer: str) -> None:
        """Verify the signature under `public`. Raises PeerFault(bad-signature), which names `signer`."""
        verify_signature(public, self.signature, self.digest, signer)
