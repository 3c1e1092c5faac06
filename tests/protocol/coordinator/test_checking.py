from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.support.forging import complaining, receipts_of
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Freezing, Voiding
from veilsum.protocol.messages import Receipt


@pytest.fixture
def federation() -> Federation:
    """Six members wait for their boxes; member-5 has not uploaded."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.reach(Checking)
    return federation


@pytest.fixture
def receipts(federation: Federation) -> dict[str, Receipt]:
    return receipts_of(federation, of(Checking, federation.phase))


def test_all_receipts_lead_to_the_proposal(federation: Federation, receipts: dict[str, Receipt]) -> None:
    phase = of(Checking, federation.after(*(receipts[m] for m in federation.ids[:5])))
    assert phase.waiting_for() == ("member-5",)
    assert phase.request_for("member-0") is None
    freezing = of(Freezing, phase.receive(receipts["member-5"], federation.now_s))
    assert tuple(freezing.receipts) == federation.ids
    assert tuple(s.member for s in freezing.survivors) == federation.ids[:5]


def test_at_the_deadline_fewer_void_the_attempt_and_name_the_missing(
    federation: Federation, receipts: dict[str, Receipt]
) -> None:
    phase = federation.after(*(receipts[m] for m in federation.ids[:3]))
    voiding = of(Voiding, phase.pass_deadline(federation.now_s))
    assert (voiding.fault.cause, voiding.fault.parties) == (Cause.QUORUM_LOST, federation.ids[3:])


def test_after_a_threshold_of_receipts_the_others_are_waited_for_a_little(
    federation: Federation, receipts: dict[str, Receipt]
) -> None:
    phase = federation.phase
    start_s = federation.now_s
    assert phase.deadline_s == start_s + 300
    for number, member in enumerate(federation.ids[:5], start=1):
        phase = phase.receive(receipts[member], start_s + number)
        # t = 4: the fourth receipt starts the grace, and no later one prolongs it
        assert phase.deadline_s == (start_s + 300 if number < 4 else start_s + 4 + 15)
    late = federation.phase
    for member in federation.ids[:4]:
        late = late.receive(receipts[member], start_s + 299)
    assert late.deadline_s == start_s + 300


def test_too_many_lost_next_to_each_other_void_the_attempt(sparse: Callable[..., Federation]) -> None:
    federation = sparse()
    ring, drawn = federation.manifest.graph.ring, federation.manifest.decryptors
    pair = next(pair for pair in pairwise((*ring, ring[0])) if not {*pair} & {*drawn})
    apart = [member for member in ring[::2] if member not in drawn]
    for lost, ends in ((pair, Voiding), (apart, Freezing)):
        federation = sparse(drop={federation.ids.index(m): After.OPENING for m in lost})
        federation.begin()
        phase = of(ends, federation.run_until(Voiding, Freezing))
        if isinstance(phase, Voiding):
            assert phase.fault.cause is Cause.WINDOW_EXCEEDED
            assert set(phase.fault.parties) == set(lost)


@pytest.mark.parametrize("away", [0, 2])
def test_who_is_lied_about_until_a_window_is_exceeded_is_named_with_the_liar(
    sparse: Callable[..., Federation], away: int
) -> None:
    """Decryptors complain about two neighbours on the ring, each about one of them alone."""
    federation = sparse()
    drawn, ring = federation.manifest.decryptors, federation.manifest.graph.ring
    victims = next(pair for pair in pairwise((*ring, ring[0])) if not {*pair} & {*drawn})
    liars = dict(zip(drawn, ((victim,) for victim in victims), strict=False))
    # with two more neighbours away, the window is exceeded without a lie
    parties = {*liars, *victims}
    beside = next(pair for pair in pairwise(ring) if not {*pair} & parties)[:away]
    federation.drop = {federation.ids.index(member): After.OPENING for member in beside}
    federation.tamper = complaining(federation, liars)
    federation.begin()
    phase = of(Voiding, federation.run_until(Voiding, Freezing))
    assert phase.fault.cause is (Cause.WINDOW_EXCEEDED if away else Cause.BOX_REFUSED)
    assert phase.fault.parties == tuple(sorted(beside or parties))
