"""The study: what is summed, by the study key's signature. Its content is JSON, and opaque here."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.codec import Bytes, Key, Signature
from protocol.messages.base import Kind, Signed
from protocol.tags import Tag

MAX_CONTENT = 1 << 20


class Study(Signed):
    """A signed study. `veilsum.study` reads its content and applies its rules.

    Attributes:
        federation: the admin's public key: a study of one federation says nothing in another.
        content: canonical JSON (RFC 8785).
    """

    kind: ClassVar[int] = Kind.STUDY
    tag: ClassVar[Tag] = Tag.STUDY

    federation: Key
    content: Annotated[bytes, Bytes(MAX_CONTENT)]
    signature: Signature

    @cached_property
    def hash(self) -> bytes:
        """Names the study: the very hash that is signed, so that a second signature makes no second study."""
        return self.digest
