from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again
from tests.support.simulator import After, Federation
from veilsum.protocol.attempt import check_manifest
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import Cards, KeyCard, Shown, cards_beacon, cards_tree

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
    assert not enrolling.complete
    assert full(enrolling).complete


def test_the_manifest_lists_the_cards_in_order_with_what_follows_from_them(enrolling: Enrolling) -> None:
    manifest = full(enrolling).manifest()
    assert manifest == FEDERATION.manifest
    check_manifest(FEDERATION.roster, FEDERATION.study, manifest)


def test_a_cohort_closes_without_those_who_did_not_come(enrolling: Enrolling) -> None:
    manifest = full(enrolling, 4).manifest()
    assert manifest.members == FEDERATION.ids[:4]
    assert (manifest.survivors_min, manifest.threshold) == (4, 3)
    check_manifest(FEDERATION.roster, FEDERATION.study, manifest)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_the_study_needs_make_no_cohort(enrolling: Enrolling, count: int) -> None:
    with pytest.raises(PeerFault, match=r"^cohort-too-small: "):
        full(enrolling, count).manifest()


def test_a_nominated_committee_of_which_too_few_came_makes_no_cohort() -> None:
    federation = Federation(7, decryptors=(0, 1, 2, 3))
    enrolling = Enrolling(federation.roster, federation.study, 0, "period-0")
    for index in (0, 4, 5, 6):
        enrolling = enrolling.receive(federation.cards.shown[index].card, federation.now_s)
    with pytest.raises(PeerFault, match=r"^cohort-too-small: "):
        enrolling.manifest()


def test_a_repeated_run_is_for_the_members_of_the_repeated_attempt_all_of_them() -> None:
    federation = Federation(6, drop={5: After.CARD})
    repeats = federation.run_round().phase.attempt.context
    enrolling = Enrolling(
        federation.roster, federation.study, 1, "period-0", repeats, federation.sets[repeats]
    )
    assert enrolling.invited == federation.ids[:5]
    for member in federation.ids[:5]:
        _, (card,) = Enrolled.start(
            member,
            federation.roster,
            federation.study,
            federation.keys[member],
            counter=1,
            period="period-0",
            repeats=repeats,
        )
        assert isinstance(card, KeyCard)
        if member == "member-4":
            with pytest.raises(PeerFault, match=r"^cohort-too-small: .*\[member-4\]$"):
                enrolling.manifest()
            stranger = again(card, federation.keys["member-5"], member="member-5")
            with pytest.raises(PeerFault, match=r"^unknown-member: .*\[member-5\]$"):
                enrolling.receive(stranger, federation.now_s)
        enrolling = enrolling.receive(card, federation.now_s)
    assert enrolling.complete
    assert enrolling.manifest().survivors_min == 5


def test_the_same_card_again_changes_nothing(enrolling: Enrolling) -> None:
    assert enrolling.receive(CARDS[0], FEDERATION.now_s) is enrolling


def test_a_key_that_came_before_a_restart_is_in_use_too(enrolling: Enrolling) -> None:
    fresh = replace(enrolling, cards={}, taken=frozenset())
    loaded = fresh.with_cards(enrolling.cards.values())
    assert loaded == enrolling
    with pytest.raises(PeerFault, match=r"^duplicate: .*\[member-1\]$"):
        loaded.receive(signed(1, mask_key=CARDS[0].mask_key), FEDERATION.now_s)


def test_the_manifest_binds_the_cards_and_draws_lots_by_them(enrolling: Enrolling) -> None:
    manifest = full(enrolling).manifest()
    assert manifest.cards_root == cards_tree(CARDS).root
    assert manifest.beacon == cards_beacon(manifest.cohort, manifest.cards_root)
    other = full(
        Enrolling(FEDERATION.roster, FEDERATION.study, 0, "period-0").receive(
            signed(0, nonce=bytes(32)), FEDERATION.now_s
        ),
        0,
    )
    for card in CARDS[1:]:
        other = other.receive(card, FEDERATION.now_s)
    assert other.manifest().beacon != manifest.beacon


def test_up_to_two_hundred_everybody_is_shown_all_cards(enrolling: Enrolling) -> None:
    whole = full(enrolling)
    manifest = whole.manifest()
    for member in manifest.members:
        assert whole.cards_for(manifest, member) == Cards(manifest, tuple(Shown(card, ()) for card in CARDS))
