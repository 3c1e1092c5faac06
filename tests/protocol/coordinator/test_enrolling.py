from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import KeyCard

FEDERATION = Federation(5)
CARDS = tuple(shown.card for shown in FEDERATION.cards.shown)


@pytest.fixture
def enrolling() -> Enrolling:
    """Cohort 0, with the card of member-0."""
    return Enrolling(FEDERATION.roster, FEDERATION.study, 0, "period-0").receive(CARDS[0], FEDERATION.now_s)


def signed(index: int, key: SigningKey | None = None, **changes: Any) -> KeyCard:
    card = CARDS[index]
    return again(card, key or FEDERATION.keys[card.member], **changes)


def full(enrolling: Enrolling, count: int = 5) -> Enrolling:
    for card in CARDS[:count][::-1]:
        enrolling = enrolling.receive(card, FEDERATION.now_s)
    return enrolling


def test_a_cohort_is_complete_when_everyone_has_sent_a_card(enrolling: Enrolling) -> None:
    assert not enrolling.is_complete
    assert full(enrolling).is_complete


def test_a_repeated_run_is_for_the_members_of_the_repeated_attempt_all_of_them() -> None:
    federation = Federation(6, drop={5: After.CARD})
    repeats = federation.run_round().phase.attempt.context
    enrolling = Enrolling(
        federation.roster, federation.study, 1, "period-0", repeats, federation.sets[repeats]
    )
    assert enrolling.invited_members == federation.ids[:5]
    for member in federation.ids[:5]:
        _, (card,) = Enrolled.begin_enrolment(
            member,
            federation.roster,
            federation.study,
            federation.keys[member],
            counter=1,
            period="period-0",
            serial=2,
            repeats=repeats,
        )
        assert isinstance(card, KeyCard)
        if member == "member-4":
            with pytest.raises(PeerFault, match=r"^cohort-too-small: .*\[member-4\]$"):
                enrolling.make_manifest()
            stranger = again(card, federation.keys["member-5"], member="member-5")
            with pytest.raises(PeerFault, match=r"^unknown-member: .*\[member-5\]$"):
                enrolling.receive(stranger, federation.now_s)
        enrolling = enrolling.receive(card, federation.now_s)
    assert enrolling.is_complete
    assert enrolling.make_manifest().survivors_min == 5


def test_the_same_card_again_changes_nothing(enrolling: Enrolling) -> None:
    assert enrolling.receive(CARDS[0], FEDERATION.now_s) is enrolling


def test_a_key_that_came_before_a_restart_is_in_use_too(enrolling: Enrolling) -> None:
    fresh = replace(enrolling, cards={}, taken=frozenset())
    loaded = fresh.with_cards(enrolling.cards.values())
    assert loaded == enrolling
    with pytest.raises(PeerFault, match=r"^duplicate: .*\[member-1\]$"):
        loaded.receive(signed(1, mask_key=CARDS[0].mask_key), FEDERATION.now_s)
