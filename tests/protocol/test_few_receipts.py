"""One liar among few receipts: whom it costs their place while others are on their way (protocol §4.5)."""

from typing import Any

from tests.support.forging import again, receipts_of
from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Checking, Freezing


def test_a_liar_within_the_grace_leaves_nobody_out_whose_holders_are_on_their_way() -> None:
    """Three honest dealers had seven clean receipts of eight, where eight are asked: a set of the other eight could be proposed."""
    federation = Federation(12)
    phase: Any = federation.reach(Checking)
    liar, *honest = federation.ids
    receipts, threshold = receipts_of(federation, phase), phase.attempt.quorum.threshold
    told, victims = receipts[liar], tuple(honest[:3])
    clean = tuple(dealer for dealer in told.dealers if dealer not in victims)
    false = again(told, federation.keys[liar], dealers=clean, complaints=victims)
    phase = phase.receive(false, federation.now_s)
    for member in honest[: threshold - 1]:
        phase = phase.receive(receipts[member], federation.now_s)
    assert phase.deadline_s == federation.now_s + phase.setting.windows.grace_s
    waiting = phase.expire(phase.deadline_s)
    assert isinstance(waiting, Checking)
    assert waiting.deadline_s == phase.latest_s
    # those who come 20 seconds later show that nothing was wrong with the boxes of these
    late: Any = waiting
    for member in honest[threshold - 1 :]:
        late = late.receive(receipts[member], federation.now_s + 20)
    assert isinstance(late, Freezing)
    assert tuple(each.member for each in late.survivors) == federation.ids
    # where they never come, nobody else holds shares of the three
    assert waiting.deadline_s is not None
    alone = waiting.expire(waiting.deadline_s)
    assert isinstance(alone, Freezing)
    assert tuple(each.member for each in alone.survivors) == tuple(honest[3:])
