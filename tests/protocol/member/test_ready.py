from dataclasses import replace

from tests.protocol.questions import GRADIENTS
from tests.support.forging import again
from tests.support.refusals import refused
from tests.support.simulator import Federation


def test_a_history_that_rewrites_what_the_member_has_accepted_is_refused() -> None:
    federation = Federation(4, question=GRADIENTS)
    federation.run_round()
    federation.run_round()
    first, second = federation.links
    for links in ((replace(first, survivors=b"\x05" * 32), second), (second, first), (second,), ()):
        with refused("chain-broken"):
            federation.ask(
                "member-0", again(federation.opening(federation.terms()), federation.coordinator, links=links)
            )
