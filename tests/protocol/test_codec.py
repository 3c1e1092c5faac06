from dataclasses import FrozenInstanceError, replace
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from veilsum.protocol.codec import (
    U8,
    U32,
    U64,
    Bytes,
    Codec,
    Fixed,
    Headed,
    Id,
    Many,
    Name,
    Secret,
    SecretBytes,
    Struct,
    Text,
    UInt,
)
from veilsum.protocol.errors import Misuse, PeerFault


class Point(Struct):
    member: Id
    weight: U32


class Drawing(Headed):
    version: ClassVar[int] = 3
    kind: ClassVar[int] = 9

    title: Id
    points: Annotated[tuple[Point, ...], Many(Point, 4, ascending=True)]
    bits: Annotated[bytes, Bytes(5)]
    key: Secret
    flag: U8
    serial: U64


DRAWING = Drawing("plan", (Point("a", 1), Point("b", 2)), b"\x01\x02", SecretBytes(b"\x77" * 32), 5, 6)


def decode(codec: Codec, data: bytes) -> Any:
    value, end = codec.decode(data, 0)
    assert end == len(data)
    return value


def test_on_the_wire() -> None:
    wire = bytes.fromhex(
        "".join(
            (
                "03",  # version
                "09",  # kind
                "04706c616e",  # title: "plan"
                "02000000",  # points: two
                "0161" + "01000000",  # "a", 1
                "0162" + "02000000",  # "b", 2
                "02000000" + "0102",  # bits
                "77" * 32,  # key
                "05",  # flag
                "0600000000000000",  # serial
            )
        )
    )
    assert DRAWING.to_bytes().hex() == wire.hex()
    assert Drawing.from_bytes(wire) == DRAWING
    assert Drawing.from_bytes(memoryview(wire)) == DRAWING


@pytest.mark.parametrize("size", [1, 4, 8])
def test_integers_are_little_endian_and_of_their_width(size: int) -> None:
    codec = UInt(size)
    for value in (0, 1, (1 << 8 * size) - 1):
        assert codec.encode(value) == value.to_bytes(size, "little")
        assert decode(codec, codec.encode(value)) == value
    for value in (-1, 1 << 8 * size):
        with pytest.raises(Misuse, match="does not fit"):
            codec.encode(value)


@pytest.mark.parametrize(
    "value", ["", "../x", "a/b", ".", "A", "Ann", "a b", "a\0", "a\n", "é", "a" * 65, "a_b", "a.b", "%2e"]
)
def test_other_names_are_refused_both_ways(value: str) -> None:
    raw = value.encode()
    with refused("malformed"):
        decode(Name(), bytes((len(raw),)) + raw)
    with pytest.raises(Misuse, match="name"):
        Name().encode(value)
    with refused("malformed"):
        decode(Name(), b"\x02\xff\xfe")  # no text


def test_bytes_of_a_fixed_length() -> None:
    assert decode(Fixed(3), b"abc") == b"abc"
    with refused("truncated"):
        decode(Fixed(3), b"ab")
    for wrong in (b"ab", b"abcd"):
        with pytest.raises(Misuse, match="3 belong"):
            Fixed(3).encode(wrong)


@pytest.mark.parametrize(
    ("codec", "fits", "beyond", "wire"),
    [
        (Bytes(3), b"abc", b"abcd", b"abcd"),
        (Text(3), "éa", "éé", "éé".encode()),
        (Many(UInt(1), 2), (2, 1), (1, 2, 3), b"\1\2\3"),
    ],
    ids=["bytes", "text", "list"],
)
def test_what_is_beyond_its_limit_is_refused_both_ways(
    codec: Codec, fits: Any, beyond: Any, wire: bytes
) -> None:
    assert decode(codec, codec.encode(fits)) == fits
    with pytest.raises(Misuse):
        codec.encode(beyond)
    with refused("oversized"):
        decode(codec, len(beyond if isinstance(beyond, tuple) else wire).to_bytes(4, "little") + wire)


@pytest.mark.parametrize(
    "value", ["\0", "a\n", "a\tb", "\x1b[31m", "\x7f", "\x80", "\x9f", "\u2028", "\u202e", "\u2066"]
)
def test_control_characters_are_refused_both_ways(value: str) -> None:
    raw = value.encode()
    with refused("malformed"):
        decode(Text(9), len(raw).to_bytes(4, "little") + raw)
    with pytest.raises(Misuse, match="control characters"):
        Text(9).encode(value)


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_a_text_that_is_no_utf_8_is_refused(raw: bytes) -> None:
    with refused("malformed"):
        decode(Text(9), len(raw).to_bytes(4, "little") + raw)


def test_a_lone_surrogate_is_our_own_mistake() -> None:
    # how Python hands over bytes of a command line that are no UTF-8
    with pytest.raises(Misuse, match="lone surrogates"):
        Text(9).encode(b"\xff".decode("utf-8", "surrogateescape"))


@given(value=st.text(max_size=20))
def test_a_text_that_is_encoded_decodes_to_itself(value: str) -> None:
    try:
        wire = Text(80).encode(value)
    except Misuse:
        return
    assert decode(Text(80), wire) == value


@pytest.mark.parametrize("items", [(2, 1), (1, 1), (1, 3, 2)])
def test_an_ascending_list_refuses_disorder_and_repeats_both_ways(items: tuple[int, ...]) -> None:
    wire = Many(UInt(1), 3).encode(items)
    with refused("malformed"):
        decode(Many(UInt(1), 3, ascending=True), wire)
    with pytest.raises(Misuse, match="ascending order"):
        Many(UInt(1), 3, ascending=True).encode(items)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a",), {}), (("a", 1, 2), {}), (("a",), {"member": "b"}), (("a", 1), {"more": 1})],
)
def test_a_struct_takes_each_of_its_fields_once(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="member, weight"):
        Point(*values, **named)
    assert Point("a", 1) == Point("a", weight=1) != Point("b", 1)
    assert hash(Point("a", 1)) == hash(Point(weight=1, member="a"))


def test_a_struct_never_changes() -> None:
    point = Point("a", 1)
    with pytest.raises(FrozenInstanceError):
        point.weight = 2  # type: ignore[misc]  # what is tried
    with pytest.raises(FrozenInstanceError):
        del point.weight
    assert replace(point, weight=2) == Point("a", 2)


def test_secrets_come_back_hidden() -> None:
    for codec, wire in ((Fixed(2, secret=True), b"hi"), (Bytes(9, secret=True), b"\x02\0\0\0hi")):
        value = decode(codec, wire)
        assert value == b"hi"
        assert [repr(value), str(value), f"{value}", f"{value!r}"] == ["<SecretBytes 2 B>"] * 4


def test_a_repr_abbreviates_bytes_and_long_lists_and_hides_secrets() -> None:
    assert repr(DRAWING) == (
        "Drawing(title='plan', points=(Point(member='a', weight=1), Point(member='b', weight=2)), "
        "bits=<2 B 0102>, key=<SecretBytes 32 B>, flag=5, serial=6)"
    )
    long = Drawing("plan", tuple(Point(m, 1) for m in "abcd"), b"", SecretBytes(bytes(32)), 5, 6)
    assert "points=<4 items>" in repr(long)


@given(data=st.binary(max_size=120))
def test_any_bytes_decode_or_are_a_peers_fault(data: bytes) -> None:
    try:
        drawing = Drawing.from_bytes(b"\x03\x09" + data)
    except PeerFault:
        return
    assert drawing.to_bytes() == b"\x03\x09" + data
