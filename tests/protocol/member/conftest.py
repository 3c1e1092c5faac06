from collections.abc import Callable

import pytest

from protocol.member import MemberPhase
from protocol.messages import Message
from protocol.simulator import Federation


def _answer(federation: Federation, member: str, message: Message) -> tuple[MemberPhase, tuple[Message, ...]]:
    return federation.phases[member].receive(message, federation.keys[member], federation.now_s)


@pytest.fixture
def answer() -> Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]:
    """What a member of the federation makes of a message; the federation stays as it was."""
    return _answer
