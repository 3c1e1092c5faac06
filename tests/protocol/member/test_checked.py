import pytest

from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.member import Checked, Voted, load_phase
from veilsum.protocol.messages import Deliveries, Freeze, Message, Receipt, Vote


@pytest.fixture
def federation() -> Federation:
    """Six members wait for the proposal; member-5 has not uploaded."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.reach(Freezing)
    return federation


@pytest.fixture
def freeze(federation: Federation) -> Freeze:
    return of(Freeze, federation.phase.request_for("member-0"))


def test_deliveries_again_are_answered_by_the_same_receipt(federation: Federation) -> None:
    phase = of(Checked, federation.phases["member-0"])
    again, replies = federation.ask("member-0", Deliveries(phase.attempt.context, ()))
    assert again is phase
    assert replies == (phase.receipt,)
    assert isinstance(replies[0], Receipt)
    with refused("wrong-context", "coordinator"):
        federation.ask("member-0", Deliveries(bytes(32), ()))


def vote(federation: Federation, message: Message) -> Vote:
    """Return member-0's vote, after storing and reloading its phase."""
    phase, (signed,) = federation.ask("member-0", message, Voted)
    assert isinstance(signed, Vote)
    federation.phases["member-0"] = load_phase(phase.to_bytes())
    return signed


def test_the_same_proposal_again_is_answered_by_the_same_bytes(
    federation: Federation, freeze: Freeze
) -> None:
    first = vote(federation, freeze)
    assert vote(federation, freeze).to_bytes() == first.to_bytes()
    assert federation.phases["member-0"].messages_to_resend() == (first,)
