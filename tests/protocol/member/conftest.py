from collections.abc import Callable

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import Message


def _answer(federation: Federation, member: str, message: Message) -> tuple[MemberPhase, tuple[Message, ...]]:
    return federation.phases[member].receive(message, federation.keys[member], federation.now_s)


@pytest.fixture
def answer() -> Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]:
    """What a member of the federation makes of a message; the federation stays as it was."""
    return _answer
