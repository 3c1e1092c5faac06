"""A stored roster of which single entries are read: a lookup parses nothing, and one of 100,000 members takes 5 MB and not 34.

What is stored was parsed, and its signature looked at, before it was stored: here nothing is checked again.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Roster
from protocol.tags import Tag, hash_fields

_NAME_AT = 2 + 8
"""After header and number."""


class Names(Sequence[str]):
    """The names of a list in a message, which stand in ascending order.

    Args:
        body: the message.
        at: where its list begins.
        beside: how many bytes stand after each name.

    Attributes:
        end: of the list.
    """

    def __init__(self, body: bytes, at: int, beside: int = 0) -> None:
        self._body, self._beside, self._starts = body, beside, array("I")
        count, at, more = int.from_bytes(body[at : at + 4], "little"), at + 4, 1 + beside
        for _ in range(count):
            self._starts.append(at)
            at += body[at] + more
        self.end = at

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self._at(start) for start in self._starts[index])
        return self._at(self._starts[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, self._starts)

    def __contains__(self, name: object) -> bool:
        return self._find(str(name)) is not None

    def beside(self, name: str) -> bytes | None:
        """What stands after a name; None where it is not among them."""
        start = self._find(name)
        if start is None:
            return None
        start += 1 + self._body[start]
        return self._body[start : start + self._beside]

    def _at(self, start: int) -> str:
        return self._body[start + 1 : start + 1 + self._body[start]].decode("ascii")

    def _find(self, name: str) -> int | None:
        index = bisect_left(self, name)
        return self._starts[index] if index < len(self) and self[index] == name else None


class Listed:
    """A roster as it is stored.

    Args:
        body: its bytes.

    Attributes:
        body: the same.
        number: the roster's, and so are those below.
        name: of the federation.
        federation: its admin's key.
        study_key: which signs studies.
        members: their ids.
        decryptors: nominated ids.
        readers: who may read sums.
        revoked: hashes of studies.
    """

    def __init__(self, body: bytes) -> None:
        Roster.check_header(body[0], body[1])
        self.body = body
        self.number = int.from_bytes(body[2:10], "little")
        at = _NAME_AT + 4 + int.from_bytes(body[_NAME_AT : _NAME_AT + 4], "little")
        self.name = body[_NAME_AT + 4 : at].decode()
        self.federation, self.study_key = body[at : at + 32], body[at + 64 : at + 96]
        self.members = Names(body, at + 96, beside=32)
        self.decryptors = Names(body, self.members.end)
        self.readers = Names(body, self.decryptors.end)
        at = self.readers.end
        count = int.from_bytes(body[at : at + 4], "little")
        self.revoked = frozenset(body[at + 4 + 32 * i : at + 36 + 32 * i] for i in range(count))

    @cached_property
    def hash(self) -> bytes:
        """As the roster's."""
        return hash_fields(Tag.ROSTER, self.body)

    def key_of(self, member: str) -> bytes:
        """The member's public key; PeerFault(unknown-member) for a stranger."""
        key = self.members.beside(member)
        if key is None:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in roster {self.number}", [member])
        return key
