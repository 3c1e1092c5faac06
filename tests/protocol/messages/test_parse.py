import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import PeerFault
from protocol.messages import Kind, Message, parse
from protocol.messages.parse import MESSAGES
from protocol.tags import PROTOCOL_VERSION

HEADERS = [bytes((PROTOCOL_VERSION, kind)) for kind in Kind]


def parsed(data: bytes) -> Message | None:
    """The message, or None where a PeerFault said what is wrong; any other exception fails the test."""
    try:
        return parse(data)
    except PeerFault:
        return None


@pytest.mark.parametrize("data", [b"", b"\x01"])
def test_less_than_a_header_is_truncated(data: bytes) -> None:
    with pytest.raises(PeerFault, match=r"^truncated:"):
        parse(data)


@pytest.mark.parametrize("kind", [0, 14, 255])
def test_a_kind_that_is_no_messages_is_unknown(kind: int) -> None:
    with pytest.raises(PeerFault, match=rf"^unknown-message: kind {kind} "):
        parse(bytes((PROTOCOL_VERSION, kind)))


@pytest.mark.parametrize("kind", [1, 14])
@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_unknown_whatever_its_kind(version: int, kind: int) -> None:
    with pytest.raises(PeerFault, match=rf"^unknown-version: version {version},"):
        parse(bytes((version, kind)))


@given(data=st.binary(max_size=600))
def test_any_bytes_are_a_message_or_a_peers_fault(data: bytes) -> None:
    parsed(data)


@given(header=st.sampled_from(HEADERS), body=st.binary(max_size=600))
def test_any_body_is_a_message_or_a_peers_fault(header: bytes, body: bytes) -> None:
    message = parsed(header + body)
    if message is not None:
        assert message.to_bytes() == header + body


@given(
    header=st.sampled_from(HEADERS),
    parts=st.lists(
        st.one_of(
            st.sampled_from(
                [b"\0\0\0\0", b"\x01\0\0\0", b"\x02\0\0\0", b"\x03\0\0\0", b"\x03ann", b"\x03bob"]
            ),
            st.sampled_from([bytes(8), bytes(32), bytes(64), b"\x04none", b"\xff" * 4, b"\0\0\1\0"]),
        ),
        max_size=40,
    ),
)
def test_what_decodes_encodes_to_the_same_bytes(header: bytes, parts: list[bytes]) -> None:
    data = header + b"".join(parts)
    message = parsed(data)
    if message is not None:
        assert message.to_bytes() == data


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(
    "count", [(1 << 16).to_bytes(4, "little"), b"\xff\xff\xff\xff", (1000).to_bytes(4, "little")]
)
def test_a_claimed_length_allocates_nothing(kind: Kind, count: bytes) -> None:
    # zeros and ones pass for most fields; wherever a length stands, the claim comes at some cut
    for filler in range(0, 300, 7):
        data = bytes((PROTOCOL_VERSION, kind)) + bytes(filler) + count
        tracemalloc.start()
        parsed(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000


def test_every_form_is_parsed_by_its_kind() -> None:
    assert MESSAGES.keys() == {int(kind) for kind in Kind}
