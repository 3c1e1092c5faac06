import pytest

from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.member import Checked, Voted, load_phase
from veilsum.protocol.messages import Freeze, Message, Vote


@pytest.fixture
def federation() -> Federation:
    """Everyone waits for the proposal."""
    federation = Federation(6)
    federation.reach(Freezing)
    return federation


@pytest.fixture
def freeze(federation: Federation) -> Freeze:
    request = federation.phase.request_for("member-0")
    assert isinstance(request, Freeze)
    return request


def vote(federation: Federation, message: Message) -> Vote:
    """What member-0 signs; it is stored and reloaded."""
    phase, (signed,) = federation.ask("member-0", message)
    assert isinstance(phase, Voted)
    assert isinstance(signed, Vote)
    federation.phases["member-0"] = load_phase(phase.to_bytes())
    return signed


def test_the_same_proposal_again_is_answered_by_the_same_bytes(
    federation: Federation, freeze: Freeze
) -> None:
    first = vote(federation, freeze)
    assert vote(federation, freeze).to_bytes() == first.to_bytes()
    assert federation.phases["member-0"].outbox() == (first,)


def test_the_vote_keeps_the_shares_it_will_reveal(federation: Federation, freeze: Freeze) -> None:
    checked = federation.phases["member-0"]
    assert isinstance(checked, Checked)
    vote(federation, freeze)
    voted = federation.phases["member-0"]
    assert isinstance(voted, Voted)
    assert voted.held() == checked.held() == checked.opened
    assert len(voted.opened) == 5
