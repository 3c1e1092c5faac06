"""A federation's chain with what it binds, for whoever reads the ledger (protocol §8)."""

from typing import Annotated, ClassVar

from protocol.codec import Key, Many, Nested
from protocol.messages.base import Kind, Message
from protocol.messages.opening import MAX_LINKS, Link
from protocol.messages.outcome import Past


class Ledger(Message):
    """Every ended attempt of a federation and the sets it opened; the chain's head binds it."""

    kind: ClassVar[int] = Kind.LEDGER

    federation: Key
    links: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)]
    history: Annotated[tuple[Past, ...], Many(Nested(Past), MAX_LINKS)]
