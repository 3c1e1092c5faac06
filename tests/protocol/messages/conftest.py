from collections.abc import Callable

import pytest

from protocol.errors import PeerFault
from protocol.messages import Message, parse


def _strict(message: Message, wire: bytes) -> None:
    form = type(message)
    assert message.to_bytes().hex() == wire.hex()
    assert form.from_bytes(wire) == message
    assert parse(memoryview(wire)) == message
    for length in range(len(wire)):
        for decode in (form.from_bytes, parse):
            with pytest.raises(PeerFault, match=r"^truncated:"):
                decode(wire[:length])
    with pytest.raises(PeerFault, match=r"^left-over-bytes: 1 bytes"):
        parse(wire + b"\0")
    for version in (2, 4):
        with pytest.raises(PeerFault, match=rf"^unknown-version: version {version}, this side speaks 3"):
            form.from_bytes(bytes((version,)) + wire[1:])
    with pytest.raises(PeerFault, match=r"^unknown-message: kind 99"):
        form.from_bytes(wire[:1] + b"\x63" + wire[2:])


@pytest.fixture
def strict() -> Callable[[Message, bytes], None]:
    """The bytes are the message's and its alone: shorter, longer, of another version or kind they are refused."""
    return _strict
