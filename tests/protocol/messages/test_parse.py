from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.messages.forms import rebuild, sample
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, parse_message
from veilsum.protocol.tags import PROTOCOL_VERSION

HEADERS = [bytes((PROTOCOL_VERSION, kind)) for kind in Message.forms]
WIRES = [sample(form).to_bytes() for form in Message.forms.values()]


def parsed(data: bytes) -> Message | None:
    """Return the message, or None if a PeerFault refused it; any other exception fails the test."""
    try:
        return parse_message(data)
    except PeerFault:
        return None


def canonical(data: bytes) -> bool:
    """Return whether the bytes are refused, or are the only encoding of their message."""
    message = parsed(data)
    return message is None or message.to_bytes() == rebuild(message).to_bytes() == data


@given(data=st.binary(max_size=600))
def test_any_bytes_are_a_message_or_a_peers_fault(data: bytes) -> None:
    assert canonical(data)


@given(header=st.sampled_from(HEADERS), body=st.binary(max_size=600))
def test_any_body_is_a_message_or_a_peers_fault(header: bytes, body: bytes) -> None:
    assert canonical(header + body)


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
    assert canonical(header + b"".join(parts))


@given(wire=st.sampled_from(WIRES), data=st.data())
def test_a_changed_message_is_refused_or_says_what_its_bytes_say(wire: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(wire)))
    end = data.draw(st.integers(start, min(start + 8, len(wire))))
    assert canonical(wire[:start] + data.draw(st.binary(max_size=8)) + wire[end:])
