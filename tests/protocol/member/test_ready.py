from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.questions import GRADIENTS, link
from tests.support.forging import again
from tests.support.simulator import After, Federation, of
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import PairKey
from veilsum.protocol.member import Opened, Ready
from veilsum.protocol.messages import NO_CONTEXT, Opening, Upload


def opening(federation: Federation, key: SigningKey | None = None, **changes: Any) -> Opening:
    """The federation's next opening, changed and signed."""
    return again(federation.opening(federation.terms()), key or federation.coordinator, **changes)


@pytest.fixture
def federation() -> Federation:
    return Federation(4)


@pytest.fixture
def absent() -> Federation:
    """Two rounds have been held without member-4."""
    federation = Federation(5, drop={4: After.CARD}, question=GRADIENTS)
    federation.run_round()
    federation.run_round()
    return federation


# Sequence and history


def test_a_member_that_was_away_catches_up_by_the_chain(absent: Federation) -> None:
    phase, _ = absent.ask("member-4", opening(absent))
    others, _ = absent.ask("member-0", opening(absent))
    assert isinstance(phase, Opened)
    assert isinstance(others, Opened)
    assert phase.ready.sequence == 2
    for mine, theirs in ((phase.ready.masks, others.ready.masks), (phase.ready.boxes, others.ready.boxes)):
        assert key_with(mine, "member-0") == key_with(theirs, "member-4")


def key_with(pairs: tuple[PairKey, ...], peer: str) -> bytes:
    return {pair.peer: pair.key for pair in pairs}[peer]


def test_a_certificate_that_the_history_omits_or_replaces_is_asked_for() -> None:
    federation = Federation(4, question=GRADIENTS)
    federation.run_round()
    first = federation.links[0]
    for other in (replace(first, context=bytes(32)), replace(first, reason="lost", survivors=NO_CONTEXT)):
        with pytest.raises(PeerFault, match=r"^outcome-missing: the history omits an attempt"):
            federation.ask("member-0", opening(federation, links=(other,)))


def test_any_other_end_that_the_history_omits_or_replaces_breaks_it() -> None:
    federation = Federation(4)
    federation.tamper = lambda _sender, message: None if isinstance(message, Upload) else message
    federation.run_round()
    first = federation.links[0]
    assert first.reason == "survivors-too-few"
    for other in (replace(first, context=bytes(32)), replace(first, reason="cancelled")):
        with pytest.raises(PeerFault, match=r"^chain-broken: the history omits an attempt"):
            federation.ask("member-0", opening(federation, links=(other,)))


def test_a_history_that_rewrites_what_the_member_has_accepted_is_refused() -> None:
    federation = Federation(4, question=GRADIENTS)
    federation.run_round()
    federation.run_round()
    first, second = federation.links
    for links in ((replace(first, survivors=b"\x05" * 32), second), (second, first), (second,), ()):
        with pytest.raises(PeerFault, match=r"^chain-broken: the history does not begin with"):
            federation.ask("member-0", opening(federation, links=links))


def test_attempts_of_other_cohorts_stand_between_and_skip_nothing() -> None:
    federation = Federation(4)
    federation.run_round()
    federation.enrol("other-1")
    phase, _ = federation.ask("member-0", opening(federation), Opened)
    assert phase.ready.history.length == 1


@pytest.mark.parametrize(
    ("places", "opened"),
    [
        ([(0, 0), (0, 1)], (0, 2)),
        ([(0, 0), (0, 1)], (1, 0)),
        ([(0, 0), (1, 0), (1, 1)], (2, 0)),
        ([(0, 0), (1, 0)], (1, 1)),
    ],
)
def test_every_step_is_the_next_attempt_or_the_next_round(
    federation: Federation, places: list[tuple[int, int]], opened: tuple[int, int]
) -> None:
    links = tuple(link(federation, place) for place in places)
    phase, _ = federation.ask(
        "member-0", opening(federation, links=links, sequence=opened[0], attempt=opened[1]), Opened
    )
    assert phase.ready.sequence == opened[0]


@pytest.mark.parametrize(
    "places", [[(1, 0)], [(0, 1)], [(0, 0), (0, 0)], [(0, 0), (2, 0)], [(0, 0), (1, 1)], [(1, 0), (0, 0)]]
)
def test_any_other_step_is_refused(federation: Federation, places: list[tuple[int, int]]) -> None:
    links = tuple(link(federation, place) for place in places)
    with pytest.raises(PeerFault, match=r"^chain-broken:"):
        federation.ask("member-0", opening(federation, links=links, sequence=places[-1][0] + 1))


def test_keys_move_one_step_a_round_and_not_for_a_retry(federation: Federation) -> None:
    ready = of(Ready, federation.phases["member-0"])
    retry = ready.advanced(0, 3, ready.history)
    assert (retry.masks, retry.boxes) == (ready.masks, ready.boxes)
    two = ready.advanced(2, 0, ready.history)
    assert two == ready.advanced(1, 0, ready.history).advanced(2, 0, ready.history)
    cohort = federation.manifest.cohort
    for before, after in ((ready.masks, two.masks), (ready.boxes, two.boxes)):
        assert not {pair.key for pair in before} & {pair.key for pair in after}
        assert after == tuple(pair.ratcheted(cohort, 1).ratcheted(cohort, 2) for pair in before)


# A decryptor that comes after the latest end


def test_a_decryptor_that_comes_too_late_erases_and_others_refuse() -> None:
    federation = Federation(5, decryptors=(1, 2, 3, 4))
    late = opening(federation, terms=federation.terms(latest_end_s=int(federation.now_s)))
    ready, _ = federation.ask("member-1", late, Ready)
    assert (ready.sequence, len(ready.history.unsettled)) == (1, 1)
    with pytest.raises(PeerFault, match=r"^terms-expired:"):
        federation.ask("member-0", late)
