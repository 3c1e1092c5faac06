"""Messages by their codecs: their notation in the specification, a sample of each, and the places of their lengths."""

from collections.abc import Iterator
from typing import Any

from veilsum.protocol.codec import Bytes, Codec, Fixed, Many, Name, Struct, Text, UInt
from veilsum.protocol.messages import Certificate, Link, Message

NEEDED: dict[tuple[type[Struct], str], Any] = {(Certificate, "reason"): "none", (Link, "reason"): "none"}
"""Values of fields whose domain isn't visible in the codec."""

PAGE_NAMES = {"UploadHeader": "Header"}


def named(form: type[Struct]) -> str:
    """Return the name of the message or struct in docs/protocol."""
    return PAGE_NAMES.get(form.__name__, form.__name__)


def shown(codec: Any) -> str:
    """Return the codec in the notation of docs/protocol."""
    match codec:
        case UInt(size=size):
            return f"u{8 * size}"
        case Name():
            return "id"
        case Fixed(size=size):
            return f"B{size}"
        case Bytes(limit=limit):
            return f"bytes≤{limit:,}"
        case Text(limit=limit):
            return f"text≤{limit:,}"
        case Many(item=item, limit=limit, ascending=ascending):
            return f"list≤{limit:,} {shown(item)}{'↑' if ascending else ''}"
        case type():
            return named(codec)
    raise TypeError(codec)


def rebuild(value: Any) -> Any:
    """Return an equal value that keeps no encoding from its decoding."""
    if isinstance(value, Struct):
        return type(value)(*(rebuild(getattr(value, name)) for name in value.codecs))
    return tuple(map(rebuild, value)) if isinstance(value, tuple) else value


def structs() -> set[type[Struct]]:
    """Return every struct and message inside another message."""
    found: set[type[Struct]] = set()
    new: set[type[Struct]] = set(Message.forms.values())
    while new:
        codecs = [codec for form in new for _, codec in form.codecs.items()]
        inner: list[Any] = [codec.item if isinstance(codec, Many) else codec for codec in codecs]
        new = {codec for codec in inner if isinstance(codec, type)} - found
        found |= new
    return found


def sample(form: type[Struct]) -> Any:
    """Return a sample that decodes, with one item in every list."""
    return form(**{name: NEEDED.get((form, name), _value(codec)) for name, codec in form.codecs.items()})


def _value(codec: Any) -> Any:
    match codec:
        case UInt():
            return 1
        case Name() | Text():
            return "a"
        case Fixed(size=size):
            return bytes(1 + place % 255 for place in range(size))
        case Bytes():
            return b"a"
        case Many(item=item):
            return (_value(item),)
        case type():
            return sample(codec)
    raise TypeError(codec)


def lengths(value: Struct, at: int = 2) -> Iterator[tuple[int, Many | Bytes | Text, Any]]:
    """Yield the place, codec and value of every 4-byte length or count in the struct's bytes; of a list's items, the first's."""
    for name, codec in value.codecs.items():
        held = getattr(value, name)
        yield from _lengths(codec, held, at)
        at += len(codec.encode(held))


def _lengths(codec: Codec, held: Any, at: int) -> Iterator[tuple[int, Many | Bytes | Text, Any]]:
    match codec:
        case type():
            yield from lengths(held, at)
        case Many(item=item):
            yield at, codec, held
            yield from _lengths(item, held[0], at + 4)
        case Bytes() | Text():
            yield at, codec, held
