"""The wire format: little-endian, explicit lengths, one encoding per value (wire: Encoding).

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
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Protocol, Self, cast, dataclass_transform
from weakref import WeakValueDictionary

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault

NAME_PATTERN = r"[a-z0-9-]{1,64}"
"""Pattern of member ids and all other names on the wire."""

_name = re.compile(NAME_PATTERN).fullmatch

CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters forbidden in text: control characters, line separators and bidirectional formatting."""


class SecretBytes(bytes):
    """Bytes whose repr and str show only a length."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} B>"

    __str__ = __repr__


class Codec(Protocol):
    """Encoding of one field."""

    def encode(self, value: Any, /) -> bytes:
        """Encode a value. Raises Misuse if it is outside the codec's domain."""
        ...

    def decode(self, data: bytes, at: int, /) -> tuple[Any, int]:
        """Decode the value at `at` and return it with the position after it. Raises PeerFault if it is invalid."""
        ...


def _truncated_fault(data: bytes, at: int, count: int) -> PeerFault:
    return PeerFault(Cause.TRUNCATED, f"{count} bytes wanted at {at}, {len(data)} in all")


@dataclass(frozen=True)
class UInt:
    """A little-endian unsigned integer of `size` bytes."""

    size: int

    def encode(self, value: int) -> bytes:
        try:
            return value.to_bytes(self.size, "little")
        except OverflowError as error:
            raise Misuse(f"{value} does not fit {self.size} unsigned bytes") from error

    def decode(self, data: bytes, at: int) -> tuple[int, int]:
        end = at + self.size
        if end > len(data):
            raise _truncated_fault(data, at, self.size)
        return int.from_bytes(data[at:end], "little"), end


_LENGTH = UInt(4)


@dataclass(frozen=True)
class Fixed:
    """Exactly `size` bytes; secrets decode to `SecretBytes`."""

    size: int
    secret: bool = False

    def encode(self, value: bytes) -> bytes:
        if len(value) != self.size:
            raise Misuse(f"{len(value)} bytes where {self.size} belong")
        return value

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        end = at + self.size
        if end > len(data):
            raise _truncated_fault(data, at, self.size)
        return SecretBytes(data[at:end]) if self.secret else data[at:end], end


@dataclass(frozen=True)
class Bytes:
    """Up to `limit` bytes after a 4-byte length; secrets decode to `SecretBytes`."""

    limit: int
    secret: bool = False

    def encode(self, value: bytes) -> bytes:
        if len(value) > self.limit:
            raise Misuse(f"{len(value)} bytes where at most {self.limit} belong")
        return len(value).to_bytes(4, "little") + value

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        length, at = _LENGTH.decode(data, at)
        if length > self.limit:
            raise PeerFault(Cause.OVERSIZED, f"a field of {length} bytes, at most {self.limit} allowed")
        end = at + length
        if end > len(data):
            raise _truncated_fault(data, at, length)
        return SecretBytes(data[at:end]) if self.secret else data[at:end], end


@dataclass(frozen=True)
class Text:
    """Up to `limit` bytes of UTF-8 without control characters, after a 4-byte length."""

    limit: int

    def encode(self, value: str) -> bytes:
        if re.search(f"[{CONTROL_CHARACTERS}]", value):
            raise Misuse("the text has control characters")
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            raise Misuse("the text has lone surrogates: it was not UTF-8 where it came from") from error
        return Bytes(self.limit).encode(raw)

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        raw, end = Bytes(self.limit).decode(data, at)
        try:
            value = raw.decode()
        except UnicodeDecodeError as error:
            raise PeerFault(Cause.MALFORMED, "a text is not UTF-8") from error
        if re.search(f"[{CONTROL_CHARACTERS}]", value):
            raise PeerFault(Cause.MALFORMED, "a text has control characters")
        return value, end


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

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        if at >= len(data):
            raise _truncated_fault(data, at, 1)
        end = at + 1 + data[at]
        if end > len(data):
            raise _truncated_fault(data, at + 1, data[at])
        return _decoded_name(data[at + 1 : end]), end


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
        if self.ascending and not _is_ascending(value):
            raise Misuse("the items are not in ascending order without repeats")
        is_checked = isinstance(self.item, Fixed) and {self.item.size}.issuperset(map(len, value))
        items = value if is_checked else map(self.item.encode, value)
        return len(value).to_bytes(4, "little") + b"".join(items)

    def decode(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = _LENGTH.decode(data, at)
        if count > self.limit:
            raise PeerFault(Cause.OVERSIZED, f"a list of {count} items, at most {self.limit} allowed")
        items = list[Any]()
        if isinstance(self.item, Fixed) and not self.item.secret:
            size = self.item.size
            end = at + count * size
            if end > len(data):
                raise _truncated_fault(data, at, count * size)
            items, at = [data[i : i + size] for i in range(at, end, size)], end
        else:
            decode = self.item.decode
            for _ in range(count):
                item, at = decode(data, at)
                items.append(item)
        if self.ascending and not _is_ascending(items):
            raise PeerFault(Cause.MALFORMED, "a list is not in ascending order without repeats")
        return tuple(items), at


def _is_ascending(items: Sequence[Any]) -> bool:
    keys = [item.member for item in items] if items and hasattr(items[0], "member") else items
    return all(map(operator.lt, keys, itertools.islice(keys, 1, None)))


@dataclass_transform(frozen_default=True)
class Struct:
    """A frozen dataclass whose annotations carry codecs; subclasses need no decorator.

    Attributes:
        codecs: the codec of each field by name, in order.
    """

    codecs: ClassVar[dict[str, Codec]]
    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The methods that `dataclass` would generate for each class are written once below: generating them slows each start by 50 ms.
        dataclass(init=False, repr=False, eq=False)(cls)
        found: Any = fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
        cls.codecs = {each.name: getattr(each.type, "__metadata__", (each.type,))[0] for each in found}
        cls._defaults = {each.name: each.default for each in found if each.default is not MISSING}

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) == len(self.codecs) and not named:
            self.__dict__.update(zip(self.codecs, values, strict=True))
            return
        given = dict(zip(self.codecs, values, strict=False)) | named
        known = self._defaults | given
        if len(given) < len(values) + len(named) or known.keys() != self.codecs.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.codecs)}, each once")
        self.__dict__.update(known)

    def __setattr__(self, name: str, value: object = None) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    __delattr__ = __setattr__

    @property
    def _field_values(self) -> tuple[Any, ...]:
        return tuple(map(self.__dict__.__getitem__, self.codecs))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._field_values == self._field_values

    def __hash__(self) -> int:
        return hash(self._field_values)

    def encode(self) -> bytes:
        """Concatenate the encoded fields."""
        return b"".join([codec.encode(getattr(self, name)) for name, codec in self.codecs.items()])

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Self, int]:
        """Decode the fields at `at`, then `check_fields`; also return the position after them."""
        decoded = cls.__new__(cls)
        values = decoded.__dict__  # three times as fast as a frozen dataclass's __init__
        for name, codec in cls.codecs.items():
            values[name], at = codec.decode(data, at)
        decoded.check_fields()
        return decoded, at

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Parse `data` as exactly this struct. Raises PeerFault if it is malformed."""
        return cls._decode_to_end(bytes(data), 0)

    @classmethod
    def _decode_to_end(cls, data: bytes, at: int) -> Self:
        decoded, end = cls.decode(data, at)
        if end != len(data):
            raise PeerFault(Cause.LEFT_OVER_BYTES, f"{len(data) - end} bytes after the last field")
        return decoded

    def check_fields(self) -> None:
        """Check constraints across fields. Raises PeerFault if one is broken."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shorten_value(getattr(self, name))}" for name in self.codecs)
        return f"{type(self).__name__}({shown})"


_SHARED_STRUCTS = WeakValueDictionary[tuple[type[Struct], bytes], Struct]()


class Repeated(Struct):
    """A struct that is part of many others, so its encoding is cached."""

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Self, int]:
        """Decode the fields, and keep the bytes: a value has one encoding."""
        decoded, end = super().decode(data, at)
        decoded.__dict__["_cached_encoding"] = data[at:end]
        return decoded, end

    @cached_property
    def _cached_encoding(self) -> bytes:
        return super().encode()

    def encode(self) -> bytes:
        """Concatenate the encoded fields, with a cache."""
        return self._cached_encoding


class Shared(Repeated):
    """A struct that many messages repeat: while a reference to it exists, equal copies decode to one object.

    Every opening names all earlier attempts, so a thousand rounds would otherwise hold half a million objects.
    """

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Self, int]:
        """Decode the fields and return the existing equal object, if any."""
        decoded, end = super().decode(data, at)
        return cast("Self", _SHARED_STRUCTS.setdefault((cls, decoded.encode()), decoded)), end


class Headed(Struct):
    """A standalone struct: one byte of version, one of kind, then its fields.

    A family of such structs shares one version and the registry `forms`, by kind. Each form states its kind:
    `class Vote(Signed, kind=10)`.
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
        """Parse `data` as exactly this struct after its header. Raises PeerFault if it is malformed."""
        if len(data) < 2:
            raise PeerFault(Cause.TRUNCATED, f"{len(data)} bytes are shorter than a header")
        version, kind = data[:2]
        if version != cls.version:
            raise PeerFault(Cause.UNKNOWN_VERSION, f"version {version}, this side speaks {cls.version}")
        if kind != cls.kind:
            raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {kind} where a {cls.__name__} belongs")
        return cls._decode_to_end(bytes(data), 2)


def _shorten_value(value: object) -> str:
    if isinstance(value, SecretBytes):
        return repr(value)
    if isinstance(value, bytes):
        return f"<{len(value)} B {value[:4].hex()}>"
    if isinstance(value, tuple) and len(value) > 3:
        return f"<{len(value)} items>"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shorten_value, value))})"
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
MlkemSeed = Annotated[bytes, Fixed(64, secret=True)]
