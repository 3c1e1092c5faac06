from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.questions import GRADIENTS
from tests.support.forging import again
from tests.support.simulator import Federation
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Opening


def opening(federation: Federation, key: SigningKey | None = None, **changes: Any) -> Opening:
    """The federation's next opening, changed and signed."""
    return again(federation.opening(federation.terms()), key or federation.coordinator, **changes)


@pytest.fixture
def federation() -> Federation:
    return Federation(4)


# Sequence and history


def test_a_history_that_rewrites_what_the_member_has_accepted_is_refused() -> None:
    federation = Federation(4, question=GRADIENTS)
    federation.run_round()
    federation.run_round()
    first, second = federation.links
    for links in ((replace(first, survivors=b"\x05" * 32), second), (second, first), (second,), ()):
        with pytest.raises(PeerFault, match=r"^chain-broken: the history does not begin with"):
            federation.ask("member-0", opening(federation, links=links))


# A decryptor that comes after the latest end
