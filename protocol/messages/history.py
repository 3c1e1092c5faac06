"""A federation's chain of ended attempts (protocol §4.3)."""

from typing import Annotated, ClassVar

from protocol.codec import Key, Many, Nested
from protocol.messages.base import Kind, Message
from protocol.messages.opening import MAX_LINKS, Link


class Chain(Message):
    """Every ended attempt of a federation, oldest first."""

    kind: ClassVar[int] = Kind.CHAIN

    federation: Key
    links: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)]
