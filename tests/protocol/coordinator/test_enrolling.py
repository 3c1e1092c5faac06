from dataclasses import replace
from typing import Any

import pytest

from protocol.attempt import check_manifest
from protocol.coordinator import Enrolling
from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.messages import Cards, KeyCard, Shown, cards_beacon, cards_tree
from protocol.simulator import Federation
from tests.protocol.forging import again

FEDERATION = Federation(5)
CARDS = tuple(shown.card for shown in FEDERATION.cards.shown)


@pytest.fixture
def enrolling() -> Enrolling:
    """Cohort 0, with the card of member-0."""
    return Enrolling(FEDERATION.roster, 0, cap=10).receive(CARDS[0], FEDERATION.now_s)


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
    assert manifest == replace(FEDERATION.manifest, caps=(10,) * 5)
    check_manifest(FEDERATION.roster, manifest)


def test_a_cohort_closes_without_those_who_did_not_come(enrolling: Enrolling) -> None:
    manifest = full(enrolling, 4).manifest()
    assert manifest.members == FEDERATION.ids[:4]
    assert (manifest.colluders, manifest.survivors_min, manifest.threshold) == (1, 4, 3)
    check_manifest(FEDERATION.roster, manifest)


def test_who_stays_away_makes_no_colluder_fewer(enrolling: Enrolling) -> None:
    # a is a quarter of the roster's five, not of the three who came
    with pytest.raises(PeerFault, match=r"^cohort-too-small: with n=3 members, L=3 decryptors and a=1 "):
        full(enrolling, 3).manifest()
    assert full(replace(enrolling, colluders=0), 3).manifest().colluders == 0


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_cards_make_no_cohort(enrolling: Enrolling, count: int) -> None:
    with pytest.raises(PeerFault, match=rf"^cohort-too-small: {count} members"):
        full(enrolling, count).manifest()


@pytest.mark.parametrize(("count", "colluders"), [(3, 1), (4, 3), (4, 4), (5, 9)])
def test_too_few_cards_for_the_colluders_assumed_make_no_cohort(
    enrolling: Enrolling, count: int, colluders: int
) -> None:
    with pytest.raises(PeerFault, match=r"^cohort-too-small: with n="):
        full(replace(enrolling, colluders=colluders), count).manifest()


def test_a_nominated_committee_of_which_too_few_came_makes_no_cohort() -> None:
    federation = Federation(6, decryptors=(0, 1, 2), colluders=0)
    for present in ((3, 4, 5), (0, 3, 4, 5)):
        enrolling = Enrolling(federation.roster, 0, cap=1, colluders=0)
        for index in present:
            enrolling = enrolling.receive(federation.cards.shown[index].card, federation.now_s)
        with pytest.raises(PeerFault, match=r"^cohort-too-small: "):
            enrolling.manifest()


def test_an_operators_h_min_below_three_is_a_misuse(enrolling: Enrolling) -> None:
    with pytest.raises(Misuse):
        full(replace(enrolling, honest_min=2)).manifest()


def test_the_same_card_again_changes_nothing(enrolling: Enrolling) -> None:
    assert enrolling.receive(CARDS[0], FEDERATION.now_s) is enrolling


def test_another_card_of_the_same_member_is_a_conflict(enrolling: Enrolling) -> None:
    with pytest.raises(PeerFault, match=r"^card-conflict: .*\[member-0\]$"):
        enrolling.receive(signed(0, nonce=bytes(32)), FEDERATION.now_s)


def test_a_card_for_another_cohort_is_refused(enrolling: Enrolling) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .*\[member-1\]$"):
        enrolling.receive(signed(1, cohort=bytes(32)), FEDERATION.now_s)


def test_a_card_of_another_federation_is_refused(enrolling: Enrolling) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .*\[member-1\]$"):
        enrolling.receive(Federation(5, seed=1).cards.shown[1].card, FEDERATION.now_s)


def test_a_strangers_card_is_refused(enrolling: Enrolling) -> None:
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[sybil\]$"):
        enrolling.receive(signed(1, SigningKey(bytes(32)), member="sybil"), FEDERATION.now_s)


def test_a_card_in_another_members_name_is_refused(enrolling: Enrolling) -> None:
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-1\]$"):
        enrolling.receive(signed(1, FEDERATION.keys["member-2"]), FEDERATION.now_s)


def test_a_card_that_is_not_valid_for_a_day_is_refused(enrolling: Enrolling) -> None:
    now = int(FEDERATION.now_s)
    enrolling.receive(signed(1, expires_s=now + 86_400), now)
    for expires_s in (now + 86_399, now, 0):
        with pytest.raises(PeerFault, match=r"^card-expired: .*\[member-1\]$"):
            enrolling.receive(signed(1, expires_s=expires_s), now)


@pytest.mark.parametrize("field", ["mask_key", "box_key"])
@pytest.mark.parametrize("encoding", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_a_low_order_key_is_refused(enrolling: Enrolling, field: str, encoding: bytes) -> None:
    change: dict[str, Any] = {field: encoding}
    with pytest.raises(PeerFault, match=r"^low-order-point: .*\[member-1\]$"):
        enrolling.receive(signed(1, **change), FEDERATION.now_s)


def top_bit_set(key: bytes) -> bytes:
    return key[:31] + bytes([key[31] | 0x80])


@pytest.mark.parametrize("field", ["mask_key", "box_key"])
@pytest.mark.parametrize("theirs", ["mask_key", "box_key"])
def test_another_members_key_is_refused_in_any_encoding(
    enrolling: Enrolling, field: str, theirs: str
) -> None:
    key = getattr(CARDS[0], theirs)
    for encoding in (key, top_bit_set(key)):
        change: dict[str, Any] = {field: encoding}
        with pytest.raises(PeerFault, match=r"^duplicate: .*\[member-1\]$"):
            enrolling.receive(signed(1, **change), FEDERATION.now_s)


def test_a_key_that_came_before_a_restart_is_in_use_too(enrolling: Enrolling) -> None:
    fresh = replace(enrolling, cards={}, taken=frozenset())
    loaded = fresh.with_cards(enrolling.cards.values())
    assert loaded == enrolling
    with pytest.raises(PeerFault, match=r"^duplicate: .*\[member-1\]$"):
        loaded.receive(signed(1, mask_key=CARDS[0].mask_key), FEDERATION.now_s)


def test_one_key_for_both_purposes_is_refused(enrolling: Enrolling) -> None:
    key = AgreementKey(b"\x09" * 32).public
    for encoding in (key, top_bit_set(key)):
        with pytest.raises(PeerFault, match=r"^duplicate: .*\[member-1\]$"):
            enrolling.receive(signed(1, mask_key=key, box_key=encoding), FEDERATION.now_s)


def test_the_manifest_binds_the_cards_and_draws_lots_by_them(enrolling: Enrolling) -> None:
    manifest = full(enrolling).manifest()
    assert manifest.cards_root == cards_tree(CARDS).root
    assert manifest.beacon == cards_beacon(manifest.cohort, manifest.cards_root)
    other = full(
        Enrolling(FEDERATION.roster, 0, cap=10).receive(signed(0, nonce=bytes(32)), FEDERATION.now_s), 0
    )
    for card in CARDS[1:]:
        other = other.receive(card, FEDERATION.now_s)
    assert other.manifest().beacon != manifest.beacon


def test_up_to_two_hundred_everybody_is_shown_all_cards(enrolling: Enrolling) -> None:
    whole = full(enrolling)
    manifest = whole.manifest()
    for member in manifest.members:
        assert whole.cards_for(manifest, member) == Cards(manifest, tuple(Shown(card, ()) for card in CARDS))


def test_the_assumptions_stand_in_the_manifest(enrolling: Enrolling) -> None:
    manifest = full(replace(enrolling, loss=200, honest_min=4, colluders=0)).manifest()
    assert (manifest.loss, manifest.honest_min, manifest.colluders) == (200, 4, 0)
    check_manifest(FEDERATION.roster, manifest)
