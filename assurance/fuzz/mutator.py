"""Mutations by structure: of a value's fields, through their codecs, or of its encoded bytes."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from veilsum.protocol.codec import Bytes, Codec, Fixed, Headed, Many, Name, Struct, UInt
from veilsum.protocol.errors import Misuse, PeerFault

KEPT = 48
"""How many values of each codec a pool keeps."""

NAMES = ("", "a", "-", "none", "coordinator", "Member-0", "a" * 64, "a" * 65, "../x", "a\0b", "é")
COUNTS = (0, 1, 2, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF)


def parts(value: Struct) -> Iterator[Struct]:
    """Yield the struct and all structs inside it."""
    yield value
    for name, codec in value.codecs.items():
        held = getattr(value, name)
        if isinstance(codec, type):
            yield from parts(held)
        elif isinstance(codec, Many) and isinstance(codec.item, type):
            for item in held:
                yield from parts(item)


def encode(value: Headed) -> bytes:
    """Encode as `to_bytes`, but without its checks, so that disorder, duplicates and invalid names reach the wire."""
    return bytes((value.version, value.kind)) + _fields(value)


def _fields(value: Struct) -> bytes:
    return b"".join(_encoded(codec, getattr(value, name)) for name, codec in value.codecs.items())


def _encoded(codec: Codec, value: Any) -> bytes:
    match codec:
        case Many(item=item):
            return len(value).to_bytes(4, "little") + b"".join(_encoded(item, one) for one in value)
        case type():
            return _fields(value)
        case Fixed():
            return bytes(value)
        case Bytes():
            return len(value).to_bytes(4, "little") + bytes(value)
        case Name():
            raw = str(value).encode()[:255]
            return bytes((len(raw),)) + raw
        case _:
            return codec.encode(value)


class Pool:
    """Values seen on the wire, by codec. A value that is true elsewhere makes the best lie."""

    def __init__(self) -> None:
        self._values: dict[Codec, dict[Any, None]] = defaultdict(dict)

    def add(self, value: Struct) -> None:
        """Add all fields of a struct, at every depth."""
        for part in parts(value):
            for name, codec in part.codecs.items():
                self._keep(codec, getattr(part, name))
                if isinstance(codec, Many):
                    for item in getattr(part, name)[:8]:
                        self._keep(codec.item, item)

    def _keep(self, codec: Codec, value: Any) -> None:
        known = self._values[codec]
        known[value] = None
        if len(known) > KEPT:
            del known[next(iter(known))]

    def like(self, codec: Codec) -> list[Any]:
        """Return the values seen with this codec."""
        return list(self._values.get(codec, ()))


class Mutator:
    """Draw mutations from a seeded stream.

    Args:
        random: makes every choice.
        pool: values to insert.
    """

    def __init__(self, random: Random, pool: Pool) -> None:
        self.random, self.pool = random, pool

    def message(self, value: Headed) -> tuple[Headed | None, bytes]:
        """Mutate a message one to three times; return the changed value, if it still is one, and its bytes."""
        if self.random.random() < 0.15:
            return None, self.bytes(encode(value))
        changed: Any = value
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            changed = self.struct(changed)
        try:
            return changed, encode(changed)
        except Misuse:  # the codec refuses a value that it can't write
            return None, self.bytes(encode(value))

    def struct(self, value: Struct) -> Struct:
        """Change one field of a struct, at any depth."""
        # lists and structs contain most of the fields, and most of the checks
        weights = [3 if isinstance(codec, Many | type) else 1 for _, codec in value.codecs.items()]
        name, codec = self.random.choices(tuple(value.codecs.items()), weights)[0]
        return replace(value, **{name: self._field(codec, getattr(value, name))})  # type: ignore[type-var]  # every subclass is a dataclass

    def _field(self, codec: Codec, value: Any) -> Any:
        if self.random.random() < 0.2 and (known := self.pool.like(codec)):
            return self.random.choice(known)
        match codec:
            case type():
                return self.struct(value)
            case Many():
                return self._many(codec, value)
            case UInt(size=size):
                return self._uint(value, size)
            case Fixed(size=size):
                return self._fixed(value, size)
            case Name():
                return self._name(value)
            case _:
                if isinstance(value, bytes):
                    return self.bytes(value)
                return self._name(value) if isinstance(value, str) else value

    def _many(self, codec: Many, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items, spare = list(value), self.pool.like(codec.item)
        place = self.random.randrange(len(items)) if items else 0
        match self.random.randrange(8):
            case 0 | 1 | 2 if items:
                items[place] = self._field(codec.item, items[place])
            case 3 if items:
                del items[place]
            case 4 if items:
                items.insert(place, items[place])
            case 5 if len(items) > 1:
                other = self.random.randrange(len(items))
                items[place], items[other] = items[other], items[place]
            case 6 if spare:
                items.insert(self.random.randint(0, len(items)), self.random.choice(spare))
            case _:
                items = items[: self.random.randint(0, len(items))]
        return tuple(items)

    def _uint(self, value: int, size: int) -> int:
        top = (1 << 8 * size) - 1
        choices = (0, 1, top, value + 1, value - 1, value ^ 1 << self.random.randrange(8 * size), top >> 1)
        return self.random.choice(choices) & top

    def _fixed(self, value: bytes, size: int) -> bytes:
        match self.random.randrange(5):
            case 0:
                return bytes(size)
            case 1:
                return b"\xff" * size
            case 2:
                return self.random.randbytes(size)
            case _:
                changed = bytearray(value)
                changed[self.random.randrange(size)] ^= 1 << self.random.randrange(8)
                return bytes(changed)

    def _name(self, value: str) -> str:
        if self.random.random() < 0.3:
            return self.random.choice(NAMES)
        return value[:-1] + self.random.choice("abc-0123456789")

    def bytes(self, data: bytes) -> bytes:
        """Change a byte string in one to four places: bits, lengths, gaps, duplicates, endings."""
        changed = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(changed) + 1)
            size = self.random.choice((1, 1, 2, 4, 8, 32, 36, 64))
            match self.random.randrange(7):
                case 0 | 1 if at < len(changed):
                    changed[at] ^= 1 << self.random.randrange(8)
                case 2:
                    del changed[at : at + size]
                case 3:
                    changed[at:at] = self.random.randbytes(size)
                case 4:
                    changed[at:at] = changed[at : at + size]
                case 5:
                    changed[at : at + 4] = self.random.choice(COUNTS).to_bytes(4, "little")
                case _:
                    del changed[at:]
        return bytes(changed)


def inflated(value: Struct, top: int) -> Iterator[Struct]:
    """Yield the struct with one list or byte string, at any depth, as long as its codec and `top` bytes allow."""
    for name, codec in value.codecs.items():
        held = getattr(value, name)
        match codec:
            case Bytes(limit=limit):
                yield replace(value, **{name: bytes(min(limit, top))})  # type: ignore[type-var]  # every subclass is a dataclass
            case type():
                for inner in inflated(held, top):
                    yield replace(value, **{name: inner})  # type: ignore[type-var]  # as above
            case Many() if held:
                size = max(1, len(_encoded(codec.item, held[0])))
                count = min(codec.limit, top // size)
                items = tuple(_numbered(held[0], i) if codec.ascending else held[0] for i in range(count))
                yield replace(value, **{name: items})  # type: ignore[type-var]  # as above
                if isinstance(codec.item, type):
                    for inner in inflated(held[0], top):
                        yield replace(value, **{name: (inner, *held[1:])})  # type: ignore[type-var]  # as above
            case _:
                pass


def _numbered(item: Any, number: int) -> Any:
    """Return the item with a name or value that rises with `number`; unchanged if it has neither."""
    if isinstance(item, Struct):
        nested = [name for name, codec in item.codecs.items() if isinstance(codec, type)]
        for name in [name for name, _ in item.codecs.items() if name == "member"] or nested[:1]:
            item = replace(item, **{name: _numbered(getattr(item, name), number)})  # type: ignore[type-var]  # as above
        return item
    if isinstance(item, bytes):
        return number.to_bytes(len(item), "big")
    return number if isinstance(item, int) else f"m-{number:06}"


def sample(form: type[Headed], mutator: Mutator) -> Headed | None:
    """Draw values of a type field by field until one decodes, for types that no simulated round contains."""
    for _ in range(400):
        try:
            return form.from_bytes(encode(_drawn(form, mutator)))  # type: ignore[arg-type]  # a Headed draws a Headed
        except PeerFault:
            continue
    return None


def _drawn(form: type[Struct], mutator: Mutator) -> Struct:
    return form(**{name: _value(codec, mutator) for name, codec in form.codecs.items()})


def _value(codec: Codec, mutator: Mutator) -> Any:
    random, known = mutator.random, mutator.pool.like(codec)
    if known and random.random() < 0.7:
        return random.choice(known)
    makers: dict[type, Callable[[Any], Any]] = {
        type: lambda struct: _drawn(struct, mutator),
        Many: lambda many: tuple(_value(many.item, mutator) for _ in range(random.choice((0, 0, 1, 2)))),
        UInt: lambda uint: random.choice((0, 1, 8, 32, random.randrange(1 << 8 * uint.size))),
        Fixed: lambda fixed: random.randbytes(fixed.size),
        Bytes: lambda some: random.randbytes(random.randrange(min(some.limit, 64))),
        Name: lambda _: random.choice(("none", "a", "b", "c")),
    }
    maker = makers.get(type(codec))
    return maker(codec) if maker else codec.decode(bytes(64), 0)[0]
