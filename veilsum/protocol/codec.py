"""The wire format: little-endian, explicit lengths, one encoding per value (protocol §3).

A `Struct` is a frozen dataclass whose annotations define how each field is encoded::

    class Link(Struct):
        sequence: U64
        context: Digest

A struct's class is the codec of its fields, so a struct holds others as `header: UploadHeader` or in `Many(Link, MAX_LINKS)`.

Decoding refuses data that is short, long, oversized or outside its domain, each with its own `Cause`. Encoding a value
outside its domain raises `Misuse`.
"""

import itertools
import operator
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Protocol, Self, cast, dataclass_transform, get_type_hints
from weakref import WeakValueDictionary

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault

NAME_PATTERN = r"[a-z0-9-]{1,64}"
"""Pattern of member ids and all other names on the wire."""

_name = re.compile(NAME_PATTERN).fullmatch

CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters forbidden in text: control characters, line separators and bidirectional formatting."""


class SecretBytes(bytes):
    """Bytes whose repr and str show only a length."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} B>"

    __str__ = __repr__


class Reader:
    """A cursor over received bytes that never reads past their end; `at` counts those read."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.at, self._end = 0, len(self._data)

    def take(self, count: int) -> bytes:
        """Read `count` bytes; PeerFault(truncated) if fewer remain."""
        start, end = self.at, self.at + count
        if end > self._end:
            raise PeerFault(Cause.TRUNCATED, f"{count} bytes wanted at {start}, {self._end} in all")
        self.at = end
        return self._data[start:end].tobytes()

    def uint(self, size: int) -> int:
        """Read `size` bytes as an unsigned integer."""
        return int.from_bytes(self.take(size), "little")

    def since(self, start: int) -> bytes:
        """Bytes read since position `start`."""
        return self._data[start : self.at].tobytes()

    def done(self) -> None:
        """Refuse trailing bytes."""
        if self.at != self._end:
            raise PeerFault(Cause.LEFT_OVER_BYTES, f"{self._end - self.at} bytes after the last field")


class Codec(Protocol):
    """Encoding of one field."""

    def encode(self, value: Any, /) -> bytes:
        """Encode a value; Misuse outside its domain."""
        ...

    def decode(self, reader: Reader, /) -> Any:
        """Decode a value; PeerFault outside its domain."""
        ...


@dataclass(frozen=True)
class UInt:
    """A little-endian unsigned integer of `size` bytes."""

    size: int

    def encode(self, value: int) -> bytes:
        try:
            return value.to_bytes(self.size, "little")
        except OverflowError as error:
            raise Misuse(f"{value} does not fit {self.size} unsigned bytes") from error

    def decode(self, reader: Reader) -> int:
        return reader.uint(self.size)


@dataclass(frozen=True)
class Fixed:
    """Exactly `size` bytes; secrets decode to `SecretBytes`."""

    size: int
    secret: bool = False

    def encode(self, value: bytes) -> bytes:
        if len(value) != self.size:
            raise Misuse(f"{len(value)} bytes where {self.size} belong")
        return bytes(value)

    def decode(self, reader: Reader) -> bytes:
        taken = reader.take(self.size)
        return SecretBytes(taken) if self.secret else taken


@dataclass(frozen=True)
class Bytes:
    """Up to `limit` bytes after a 4-byte length; secrets decode to `SecretBytes`."""

    limit: int
    secret: bool = False

    def encode(self, value: bytes) -> bytes:
        if len(value) > self.limit:
            raise Misuse(f"{len(value)} bytes where at most {self.limit} belong")
        return len(value).to_bytes(4, "little") + value

    def decode(self, reader: Reader) -> bytes:
        length = reader.uint(4)
        if length > self.limit:
            raise PeerFault(Cause.OVERSIZED, f"a field of {length} bytes, at most {self.limit} allowed")
        taken = reader.take(length)
        return SecretBytes(taken) if self.secret else taken


@dataclass(frozen=True)
class Text:
    """Up to `limit` bytes of UTF-8 without control characters, after a 4-byte length."""

    limit: int

    def encode(self, value: str) -> bytes:
        if re.search(f"[{CONTROLS}]", value):
            raise Misuse("the text has control characters")
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            raise Misuse("the text has lone surrogates: it was not UTF-8 where it came from") from error
        return Bytes(self.limit).encode(raw)

    def decode(self, reader: Reader) -> str:
        try:
            value = Bytes(self.limit).decode(reader).decode()
        except UnicodeDecodeError as error:
            raise PeerFault(Cause.MALFORMED, "a text is not UTF-8") from error
        if re.search(f"[{CONTROLS}]", value):
            raise PeerFault(Cause.MALFORMED, "a text has control characters")
        return value


@dataclass(frozen=True)
class Name:
    """A member id or other name: 1 to 64 of a-z, 0-9 and "-", after a 1-byte length."""

    # Most messages contain a cohort's ids; a receipt or a freeze contains all of them.
    @staticmethod
    @lru_cache(1 << 14)
    def encode(value: str) -> bytes:
        if not _name(value):
            raise Misuse(f"{value!r} is not a name: use 1 to 64 of a-z, 0-9 and '-'")
        return len(value).to_bytes(1, "little") + value.encode("ascii")

    def decode(self, reader: Reader) -> str:
        return _decoded_name(reader.take(reader.uint(1)))


@lru_cache(1 << 14)
def _decoded_name(raw: bytes) -> str:
    value = raw.decode("ascii", "replace")
    if not _name(value):
        raise PeerFault(Cause.MALFORMED, "a name is not 1 to 64 of a-z, 0-9 and '-'")
    return sys.intern(value)  # so that receipts of 10,000 ids each share them


@dataclass(frozen=True)
class Many:
    """Up to `limit` items of one codec after a 4-byte count; `ascending` also refuses repeats and disorder."""

    item: Codec
    limit: int
    ascending: bool = False

    def encode(self, value: Sequence[Any]) -> bytes:
        if len(value) > self.limit:
            raise Misuse(f"{len(value)} items where at most {self.limit} belong")
        if self.ascending and not _ascends(value):
            raise Misuse("the items are not in ascending order without repeats")
        return len(value).to_bytes(4, "little") + b"".join(map(self.item.encode, value))

    def decode(self, reader: Reader) -> tuple[Any, ...]:
        count = reader.uint(4)
        if count > self.limit:
            raise PeerFault(Cause.OVERSIZED, f"a list of {count} items, at most {self.limit} allowed")
        items = tuple([self.item.decode(reader) for _ in range(count)])
        if self.ascending and not _ascends(items):
            raise PeerFault(Cause.MALFORMED, "a list is not in ascending order without repeats")
        return items


def _ascends(items: Sequence[Any]) -> bool:
    keys = [item.member for item in items] if items and hasattr(items[0], "member") else items
    return all(map(operator.lt, keys, itertools.islice(keys, 1, None)))


@dataclass_transform(frozen_default=True)
class Struct:
    """A frozen dataclass whose annotations carry codecs; subclasses need no decorator."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, repr=False)(cls)

    @classmethod
    @cache
    def codecs(cls) -> tuple[tuple[str, Codec], ...]:
        """Field names and codecs, in order."""
        hints = get_type_hints(cls, include_extras=True)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every subclass is a dataclass
        return tuple((name, getattr(hints[name], "__metadata__", (hints[name],))[0]) for name in names)

    def encode(self) -> bytes:
        """Concatenate the encoded fields."""
        return b"".join([codec.encode(getattr(self, name)) for name, codec in self.codecs()])

    @classmethod
    def decode(cls, reader: Reader) -> Self:
        """Decode all fields, then `validate`."""
        decoded = cls(*[codec.decode(reader) for _, codec in cls.codecs()])
        decoded.validate()
        return decoded

    def validate(self) -> None:
        """Check constraints across fields; raises PeerFault."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={_abbreviated(getattr(self, f.name))}" for f in fields(self))  # type: ignore[arg-type]  # every subclass is a dataclass
        return f"{type(self).__name__}({shown})"


_SHARED = WeakValueDictionary[tuple[type[Struct], bytes], Struct]()


class Shared(Struct):
    """A struct that many messages repeat: equal copies decode to one object while a reference to it exists.

    Every opening names all earlier attempts: a thousand rounds would otherwise hold half a million objects.
    """

    @classmethod
    def decode(cls, reader: Reader) -> Self:
        """Decode all fields and return the existing equal object, if any."""
        start = reader.at
        decoded = super().decode(reader)
        return cast("Self", _SHARED.setdefault((cls, reader.since(start)), decoded))


class Headed(Struct):
    """A standalone struct: one byte of version, one of kind, then its fields.

    A family of them has one version, and its `forms` by kind. Each form states its kind: `class Vote(Signed, kind=10)`.
    """

    version: ClassVar[int]
    kind: ClassVar[int]
    forms: ClassVar[dict[int, Any]]

    def __init_subclass__(cls, *, kind: int | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
            cls.forms[kind] = cls

    def to_bytes(self) -> bytes:
        return bytes((self.version, self.kind)) + self.encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Parse `data` as exactly this struct; raises PeerFault."""
        reader = Reader(data)
        version, kind = reader.uint(1), reader.uint(1)
        if version != cls.version:
            raise PeerFault(Cause.UNKNOWN_VERSION, f"version {version}, this side speaks {cls.version}")
        if kind != cls.kind:
            raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {kind} where a {cls.__name__} belongs")
        decoded = cls.decode(reader)
        reader.done()
        return decoded


def _abbreviated(value: object) -> str:
    if isinstance(value, SecretBytes):
        return repr(value)
    if isinstance(value, bytes):
        return f"<{len(value)} B {value[:4].hex()}>"
    if isinstance(value, tuple) and len(value) > 3:
        return f"<{len(value)} items>"
    if isinstance(value, tuple):
        return f"({', '.join(map(_abbreviated, value))})"
    return repr(value)


U8 = Annotated[int, UInt(1)]
U32 = Annotated[int, UInt(4)]
U64 = Annotated[int, UInt(8)]
Id = Annotated[str, Name()]
Digest = Annotated[bytes, Fixed(32)]
Key = Annotated[bytes, Fixed(32)]
Signature = Annotated[bytes, Fixed(64)]
Commitment = Annotated[bytes, Fixed(16)]
Secret = Annotated[bytes, Fixed(32, secret=True)]
